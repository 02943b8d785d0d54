"""Download a pinned file: resumed when interrupted, kept only when its digest is right."""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

import httpx
import tenacity
from filelock import FileLock

ATTEMPTS = 4
"""Tries at one file before giving up; each goes on where the last one stopped."""

_PROBE = httpx.Timeout(4.0, connect=3.0)
_FETCH = httpx.Timeout(30.0, connect=10.0)


class DownloadError(RuntimeError):
    """A file that could not be had; one line that begins with its address."""


class NotThereError(DownloadError):
    """The server has no such file."""


class WrongDigestError(DownloadError):
    """A file that is not the pinned one. Nothing falls back from this."""


_instead: dict[str, str] = {}
"""Beginnings of addresses, and what to ask instead."""


def use_instead(addresses: Mapping[str, str]) -> None:
    """From now on ask other servers for addresses with some beginnings; of two that fit the longer one counts."""
    _instead.clear()
    _instead.update(sorted(addresses.items(), key=lambda pair: -len(pair[0])))
    unreachable.cache_clear()


def address(url: str) -> str:
    """Return where a file is asked for."""
    return next((new + url[len(old) :] for old, new in _instead.items() if url.startswith(old)), url)


@lru_cache(maxsize=256)
def unreachable(url: str) -> str | None:
    """Ask quickly whether a file can be had; return why not, or None when it can."""
    try:
        answer = httpx.head(address(url), follow_redirects=True, timeout=_PROBE, verify=tls())
    except httpx.TimeoutException:
        return "cannot be reached: no answer in time"
    except httpx.HTTPError as error:
        return f"cannot be reached: {_reason(error)}"
    return None if answer.is_success else f"cannot be reached: answers {answer.status_code}"


@lru_cache(maxsize=1)
def tls() -> ssl.SSLContext:
    """Return whom downloads trust: the machine's authorities, or those in SSL_CERT_FILE. Made once, which is slow."""
    known = ssl.get_default_verify_paths()
    return ssl.create_default_context() if known.cafile or known.capath else httpx.create_ssl_context()


def read(url: str, *, wait: float = 1.0, headers: Mapping[str, str] | None = None) -> httpx.Response:
    """Return a small file as it was answered, whatever its digest; for lists that say digests.

    Args:
        url: where it is.
        wait: seconds before the second try; doubled for each one after.
        headers: more headers of the request.

    Raises:
        DownloadError: it did not come, after several tries, or the answer is no success.
    """
    try:
        answer = _retrying(wait)(
            httpx.get, address(url), follow_redirects=True, timeout=_FETCH, headers=headers, verify=tls()
        )
    except httpx.HTTPError as error:
        raise DownloadError(f"{url}: {_reason(error)}") from None
    if not answer.is_success:
        kind = NotThereError if answer.status_code == httpx.codes.NOT_FOUND else DownloadError
        raise kind(f"{url}: answers {answer.status_code}")
    return answer


def fetch(
    url: str,
    algorithm: str,
    digest: str,
    folder: Path,
    *,
    progress: Callable[[int, int | None], None] = lambda done, total: None,
    wait: float = 1.0,
    headers: Mapping[str, str] | None = None,
) -> Path:
    """Return the path of a downloaded file with the right digest, from the cache when it is there.

    Args:
        url: where it is.
        algorithm: `sha256` or `sha512`.
        digest: hex digest that the file must have.
        folder: where it is kept, as `<digest>`; half-done ones as `<digest>.part`.
        progress: called with (bytes done, bytes in all or None).
        wait: seconds before the second try; doubled for each one after.
        headers: more headers of the request.

    Raises:
        WrongDigestError: the whole file came and is another one; it is thrown away.
        DownloadError: it did not come, after several tries.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target, part = folder / digest, folder / f"{digest}.part"
    with FileLock(folder / f"{digest}.lock"):
        if target.is_file():
            return target
        try:
            _retrying(wait)(_continue, url, part, progress, headers or {})
        except httpx.HTTPError as error:
            raise DownloadError(f"{url}: {_reason(error)}") from None
        with part.open("rb") as file:
            found = hashlib.file_digest(file, algorithm).hexdigest()
        if found != digest:
            part.unlink()
            raise WrongDigestError(f"{url}: wanted {algorithm} {digest}, got {found}; the file was thrown away")
        part.rename(target)
        return target


def _retrying(wait: float) -> tenacity.Retrying:
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(httpx.TransportError),
        stop=tenacity.stop_after_attempt(ATTEMPTS),
        wait=tenacity.wait_exponential(multiplier=wait, max=30),
        reraise=True,
    )


def _continue(url: str, part: Path, progress: Callable[[int, int | None], None], more: Mapping[str, str]) -> None:
    """Append to a half-done file what it lacks; raise httpx.TransportError when the connection breaks."""
    start = part.stat().st_size if part.exists() else 0
    headers = {**more, **({"Range": f"bytes={start}-"} if start else {})}
    with httpx.stream(
        "GET", address(url), headers=headers, follow_redirects=True, timeout=_FETCH, verify=tls()
    ) as answer:
        if answer.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # nothing is lacking; the digest decides
        answer.raise_for_status()
        resumed = answer.status_code == httpx.codes.PARTIAL_CONTENT
        done = start if resumed else 0
        length = answer.headers.get("Content-Length")
        total = done + int(length) if length else None
        with part.open("ab" if resumed else "wb") as file:
            for chunk in answer.iter_raw():
                file.write(chunk)
                done += len(chunk)
                progress(done, total)
    if total is not None and done < total:
        raise httpx.ReadError(f"ended after {done} of {total} bytes")


def _reason(error: httpx.HTTPError) -> str:
    """Return why a request failed, in a few words."""
    if isinstance(error, httpx.HTTPStatusError):
        return f"answers {error.response.status_code}"
    return " ".join(str(error).split()) or type(error).__name__
