"""Find the copies of a program that exist only because of the layout of its tensors.

naming      the pattern of a copy, from shapes and strides
recorder    record the copies of PyTorch operations (imports torch)
report      the recorded copies, by place: table, JSON and HTML page
"""
