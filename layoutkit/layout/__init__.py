"""Layouts and patterns: the notation, axis sizes and the permutation that a pattern stands for."""
