"""Libraries: modules written as files that other programs link or load, and read back."""
