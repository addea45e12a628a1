"""Texts at the top of the page: the papers, and the meaning of the numbers."""

# Name, title, and where it was published.
PAPERS = (
    (
        "Shelim et al. 2025",
        "When can isotropy help adapt LLMs' next word prediction to numerical domains?",
        "arXiv:2505.17135",
    ),
    (
        "Yu et al. 2026",
        "Understanding Transformers for Time Series: Rank Structure, Flow-of-ranks, and Compressibility",
        "ICLR 2026, arXiv:2510.03358",
    ),
)
# Symbol and meaning.
DEFINITIONS = (
    ("ζ", "mean cosine between two tokens: 0 if they have no common direction, 1 if all point the same way"),
    ("ζ′", "the same within clusters of tokens, after subtracting the mean of each cluster"),
    (
        "ζ′ − null",
        "ζ′ minus its mean over permuted coordinates, the isotropy of Shelim et al. 2025; it responds to "
        "skewness and to unequal norms, so IsoScore and d(0.8) ÷ width stand next to it",
    ),
    ("IsoScore", "0 if one direction holds all variance of the states, 1 if all directions hold the same"),
    ("d(0.8)", "number of principal directions that hold 80 % of the variance of the states"),
    ("rank(0.01)", "number of singular values above 1 % of the largest"),
    ("NMSE", "squared error of the median forecast divided by that of the context's mean; lower is better"),
    ("WQL", "weighted quantile loss of the forecast; lower is better"),
    ("MASE", "absolute error divided by that of repeating the value one season before; lower is better"),
)
