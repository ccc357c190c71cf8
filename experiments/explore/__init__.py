"""The page on which a translator sees every possible next word (S2S Figure 2)."""
