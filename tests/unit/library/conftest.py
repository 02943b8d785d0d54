"""Modules of `playbooks/library` import their helpers as Ansible ships them: from `ansible.module_utils`."""

from __future__ import annotations

from pathlib import Path

import ansible.module_utils

ansible.module_utils.__path__.append(str(Path(__file__).parents[3] / "playbooks/module_utils"))
