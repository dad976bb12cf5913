"""One handler per opcode: from a decoded instruction to a step of the interpreter.

Arithmetic rows share handlers by form; what touches memory, control or other functions has its own.
A handler runs once per instruction, when a function is bound; the step it returns runs every time.
`table` lists them all.
"""
