"""VM bytecode: the instruction table, encoding, assembler, disassembler, verifier.

Bytes of one function ↔ `Instruction` tuples, text ↔ instructions, and a builder for emitters.
Runs nothing (`runtime.vm` does) and knows no module beyond what a verifier needs.  Called by
`compiler.program`, `runtime.vm` and the command line.

| module | what it holds |
| --- | --- |
| `isa`, `forms` | the table of opcodes and the words it is written in |
| `encoding` | bytes ↔ instructions |
| `assembler`, `drafts`, `allocation` | building functions without thinking of lifetimes |
| `text` | instructions ↔ lines |
| `verifier` | is it safe to run? |
"""
