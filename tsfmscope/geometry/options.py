"""Options of the measures of a layer's states."""

from __future__ import annotations

from pydantic import Field

from tsfmscope.strict import Strict


class ClusterOptions(Strict):
    """Options of the clustering: the range of K, the restarts, and the silhouette."""

    k_max: int = Field(10, ge=2, le=50, description="largest number of clusters K")
    restarts: int = Field(10, ge=1, description="starts of K-means for every K")
    min_silhouette: float = Field(0.1, ge=-1, le=1, description="smallest silhouette; below it K = 1 (Cai et al. 2021)")
    silhouette_rows: int = Field(20_000, ge=100, description="largest number of tokens or type means with silhouettes")


class IsotropyOptions(ClusterOptions):
    """Options of isotropy and effective dimension, as defined in docs/science.md."""

    min_cluster: int = Field(30, ge=2, description="smallest cluster, in tokens, that the adjusted cosine counts")
    permutations: int = Field(
        39, ge=0, le=9999, description="draws of each null of the adjusted cosine; below 2: no null"
    )
    repeats: int = Field(
        5, ge=0, le=999, description="random halves of the tokens for standard deviations; below 2: none"
    )
