"""The virtual machine in the words of TVM: functions by name, inputs kept, reports of where time goes.

Not here: how functions run (`bytecode_machine`, `plan_executor`, `relax_machine`).
"""
