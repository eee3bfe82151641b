"""One file a format: a pure function from Report to text; none decides the exit code.

human.py is made of matrix.py and findings.py, which lay out lines by style.py and layout.py.
"""
