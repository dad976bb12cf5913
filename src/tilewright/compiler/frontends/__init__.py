"""Front ends: foreign models in, graph IR out.  Siblings never meet; nothing is imported here."""
