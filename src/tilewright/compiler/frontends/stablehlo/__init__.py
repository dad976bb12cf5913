"""The StableHLO front end: a module as text in, graph IR out, or everything that stands in the way."""
