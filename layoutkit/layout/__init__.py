"""Layouts and patterns.

parsing    `Layout`, and the parser of layouts and patterns
pattern    `Pattern`, axis sizes, and the permutation of axes that a pattern means for a shape
"""
