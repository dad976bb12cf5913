"""What `local-sync` does not support: nothing."""

REASONS: dict[str, str] = {}
