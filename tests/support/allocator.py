"""Values of PYTORCH_CUDA_ALLOC_CONF that torch takes, and such that every release refuses."""

TAKEN = (
    "",
    " ",
    "expandable_segments:True,",
    "max_split_size_mb: 128, expandable_segments:False",
    "roundup_power2_divisions:[256:1,512:2,>:8]",
    "max_split_size_mb:512MB",
    "garbage_collection_threshold:0.8,max_split_size_mb:20",
    "backend:native",
)
REFUSED = (
    "True",
    "max_split_size_mb=128",
    "max_split_size_mb:",
    "max_split_size_mb:abc",
    "max_split_size_mb:10",
    "backend:cudaMalloc",
    "max_non_split_rounding_mb:10",
    "expandable_segments",
    "expandable_segments:true",
    "expandable_segments:1",
    "'expandable_segments:True'",
    "expandable_segments:True;max_split_size_mb:128",
    "garbage_collection_threshold:80",
    "garbage_collection_threshold:0",
)
