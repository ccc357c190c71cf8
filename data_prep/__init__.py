"""From raw text to binarised data: one recipe per dataset."""
