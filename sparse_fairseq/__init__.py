"""Sparse outputs for fairseq translation models."""
