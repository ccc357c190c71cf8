"""The route of kernels: what ``_routes`` asks of a route, on top of the operators in ``ops``.

========================= =========================================================================
``_alpha_relu``           loss and gradient of α-ReLU
``_entmax``               the same of α-entmax; the mapping and its backward pass
``_lists``, ``_rescale``  what the fused layer and a backward pass need beside
``launch``, ``linear``    which kernel for which tensors; the output layer in chunks
``ops``                   all that as operators of torch
========================= =========================================================================

float32, bfloat16 and float16 scores; α-ReLU for any α, α-entmax for 1 < α ≤ 2. What the kernels do
not serve (float64, soft targets, a learned α in a loss, other solvers) is the device route's.
"""
