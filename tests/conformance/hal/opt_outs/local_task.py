"""What `local-task` does not support: nothing."""

REASONS: dict[str, str] = {}
