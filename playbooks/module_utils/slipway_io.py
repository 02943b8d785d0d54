"""File helpers that the modules in ``library/`` share: atomic writes, owners and modes.

Runs on the host's own Python (3.9 or newer), standard library only.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple


class SlipwayError(Exception):
    """A refusal with one line for the user."""


class Attributes(NamedTuple):
    """Owner, group and mode a path should have.

    ``uid`` or ``gid`` is None where the user or group does not exist (yet): allowed only in check mode,
    where an earlier task would have made it.
    """

    uid: int | None
    gid: int | None
    mode: int


def attributes(owner: str, group: str | None, mode: str, check_mode: bool = False) -> Attributes:
    """Resolve names to ids. ``group`` None means the owner's own group.

    Raises SlipwayError when the mode is not octal, or a name is unknown outside check mode.
    """
    try:
        bits = int(mode, 8)
    except ValueError:
        raise SlipwayError(f"mode {mode!r}: expected an octal string such as '0644'") from None
    uid: int | None = None
    gid: int | None = None
    try:
        entry = pwd.getpwuid(int(owner)) if owner.isdigit() else pwd.getpwnam(owner)
        uid, gid = entry.pw_uid, entry.pw_gid
    except KeyError:
        if not check_mode:
            raise SlipwayError(
                f"user {owner!r} does not exist on this host; expected it from role host (host_users)"
            ) from None
    if group is not None:
        gid = None
        try:
            gid = int(group) if group.isdigit() else grp.getgrnam(group).gr_gid
        except KeyError:
            if not check_mode:
                raise SlipwayError(
                    f"group {group!r} does not exist on this host; expected it from role host (host_users)"
                ) from None
    return Attributes(uid, gid, bits)


def attributes_differ(path: str, wanted: Attributes) -> bool:
    """True when the owner, group or mode of ``path`` (which exists) is not the wanted one."""
    found = os.stat(path, follow_symlinks=False)
    return (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) != (wanted.uid, wanted.gid, wanted.mode)


def set_attributes(path: str, wanted: Attributes) -> None:
    """Give ``path`` its owner, group and mode."""
    if wanted.uid is None or wanted.gid is None:
        raise SlipwayError(f"{path}: its owner does not exist on this host")
    # chown clears the set-id bits, so the mode comes last.
    os.chown(path, wanted.uid, wanted.gid, follow_symlinks=False)
    os.chmod(path, wanted.mode)


def read_if_present(path: str) -> bytes | None:
    """The file's bytes, or None when there is none. Raises SlipwayError when the path is not a plain file."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(found.st_mode):
        raise SlipwayError(f"{path}: expected a plain file, found something else; move it away first")
    with open(path, "rb") as file:
        return file.read()


def make_directory(path: str) -> None:
    """Make a folder and its parents, open to everyone whatever the umask. What is there stays as it is."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for each in reversed(missing):
        os.mkdir(each)
        os.chmod(each, 0o755)  # noqa: S103 private folders get their mode from who asked for them


def no_space(path: str, needed: int) -> SlipwayError:
    """What to say when the disk with the folder ``path``, which need not exist, has no room for ``needed`` bytes."""
    folder, free = room(path)
    missing = f"{free // 2**20} MiB free, {-(-needed // 2**20)} needed"
    return SlipwayError(f"no space left on {folder} ({missing}); make room and run it again")


def room(path: str) -> tuple[str, int]:
    """The folder ``path`` or the nearest one above it that exists, and the bytes that root may still put there."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    found = os.statvfs(path)
    return path, found.f_bfree * found.f_frsize


@contextmanager
def room_for(path: str, needed: int) -> Iterator[None]:
    """Write ``needed`` bytes below the folder ``path`` inside. Raises SlipwayError when there is no room for them."""
    if room(path)[1] < needed:
        raise no_space(path, needed)
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise no_space(path, needed) from None


def write_atomic(path: str, data: bytes, wanted: Attributes) -> None:
    """Replace ``path`` in one rename; nobody sees half a file or looser rights, also after a power loss."""
    directory = os.path.dirname(path)
    with room_for(directory, len(data)):
        make_directory(directory)
        handle, temporary = tempfile.mkstemp(prefix=f".{os.path.basename(path)}.", dir=directory)  # made with mode 0600
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                set_attributes(temporary, wanted)
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise


def keep_file(path: str, data: bytes, wanted: Attributes, check_mode: bool) -> tuple[bytes | None, bool]:
    """Bring a file to its content and rights; returns what it held (None: there was none) and whether it changed."""
    old = read_if_present(path)
    rewrite = old != data
    change = rewrite or attributes_differ(path, wanted)
    if change and not check_mode:
        if rewrite:
            write_atomic(path, data, wanted)
        else:
            set_attributes(path, wanted)
    return old, change


def link_atomic(path: str, target: str) -> None:
    """Make ``path`` a symbolic link to ``target`` in one rename."""
    directory = os.path.dirname(path)
    make_directory(directory)
    # A link is made under a name that must not exist yet: in a folder of its own nobody else makes it first.
    with tempfile.TemporaryDirectory(prefix=f".{os.path.basename(path)}.", dir=directory) as scratch:
        temporary = os.path.join(scratch, "link")
        os.symlink(target, temporary)
        os.replace(temporary, path)
