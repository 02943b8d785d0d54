"""Run a module's main() in this process, as Ansible would with these arguments."""

from __future__ import annotations

import contextlib
import io
import json
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
from ansible.module_utils import basic


def run(module: ModuleType, *, check: bool = False, **arguments: Any) -> dict[str, Any]:
    """The module's result; `failed` is set when it failed."""
    payload = {"ANSIBLE_MODULE_ARGS": {**arguments, "_ansible_check_mode": check, "_ansible_diff": True}}
    printed = io.StringIO()
    with (
        mock.patch.object(basic, "_ANSIBLE_ARGS", json.dumps(payload).encode()),
        mock.patch.object(basic, "_ANSIBLE_PROFILE", "legacy", create=True),
        contextlib.redirect_stdout(printed),
        pytest.raises(SystemExit),
    ):
        module.main()
    result: dict[str, Any] = json.loads(printed.getvalue())
    return result
