"""From runs and analyses to one self-contained HTML page: tables, figures, published numbers."""
