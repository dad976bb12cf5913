"""Model families that neither the zoo nor the tests have, and what becomes of them.

``families.py`` is the table, ``write_files.py`` writes one of them, ``contest.py`` holds one against
onnxruntime and torch.  ``unseen_models.py`` beside this folder is the command.
"""
