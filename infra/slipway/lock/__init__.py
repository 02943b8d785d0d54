"""Fill in a release's digests from its publishers: their files of digests, package indices and registries.

`find` asks the publishers, `edit` writes what they say into the release file and leaves every other byte as it is.
"""

from slipway.lock.edit import write
from slipway.lock.find import Found, Report, find

__all__ = ["Found", "Report", "find", "write"]
