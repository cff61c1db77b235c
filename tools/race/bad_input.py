"""The error for what a user can put right."""


class BadInput(ValueError):
    """Says what is wrong, where, and what to do."""
