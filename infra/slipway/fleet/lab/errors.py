"""The one error of the lab."""


class LabError(Exception):
    """Something in the lab could not be done; the message is one line: what, where, what to do."""
