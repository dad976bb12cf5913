"""What all front ends share: tensors while a model is imported, the maker of nodes, problems.

Nothing here knows a foreign format; siblings of this package never meet.
"""
