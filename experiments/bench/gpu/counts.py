"""FLOPs and bytes of the fused output layer on paper: three products for each chunk of logits, or
one product and lists of the gradient's non-zeros.

``python -m experiments.bench.gpu.counts`` prints the table of docs/gpu.md. Bytes are those of
memory, each read and write of a tensor once: what a cache spares is not counted for either way.
Left out for both, and about the same: zeroing and scaling the gradients, a copy of the states
without ignored rows, bias, label smoothing, the fields of rows.
"""

from dataclasses import dataclass

CAPACITY, CHUNK_ELEMENTS = 128, 1 << 25  # of sparse_fairseq/functional/_triton/linear.py

SORTED = 8 * 2 * (4 + 8)  # bytes of a place: 8 passes that read and write key and value


@dataclass(frozen=True)
class Shape:
    rows: int
    classes: int
    hidden: int
    entries: int  # of a row's gradient: the support, and the target
    width: int = 2  # bytes of a number: bfloat16

    @property
    def chunks(self) -> int:
        return -(-self.rows * self.classes // CHUNK_ELEMENTS)

    @property
    def product(self) -> int:
        """FLOPs of one product with all weights."""
        return 2 * self.rows * self.classes * self.hidden


def of_products(shape: Shape) -> tuple[int, int]:
    """(FLOPs, bytes): logits, gradients of states and weights."""
    logits = shape.rows * shape.classes * shape.width
    states = shape.rows * shape.hidden * shape.width
    weights = shape.classes * shape.hidden
    # Logits are written, read by the loss, overwritten by the gradient, read by two products.
    moved = 5 * logits + 3 * states + 4 * shape.rows * shape.hidden
    # The weights twice for each chunk; their float32 gradient is read and written.
    moved += shape.chunks * weights * (2 * shape.width + 2 * 4)
    return 3 * shape.product, moved


def of_lists(shape: Shape) -> tuple[int, int]:
    """(FLOPs, bytes): logits, lists, gathered rows of weights and states."""
    logits = shape.rows * shape.classes * shape.width
    states = shape.rows * shape.hidden * shape.width
    weights = shape.classes * shape.hidden
    entries = shape.rows * shape.entries
    gathered = entries * shape.hidden * shape.width
    # Logits are written and read once.
    moved = 2 * logits + states + 4 * shape.rows * shape.hidden
    moved += shape.chunks * weights * shape.width
    moved += 2 * gathered + 2 * 4 * weights
    # Lists: written, read twice; all their places are sorted.
    moved += 3 * 8 * entries + SORTED * shape.rows * CAPACITY
    return shape.product + 4 * entries * shape.hidden, moved


def of_overflow(shape: Shape) -> tuple[int, int]:
    """(FLOPs, bytes) of lists where no row fits: it is written as a list as far as there is room,
    then read again and written in all its columns; the products are by kernels of our own."""
    flops, moved = of_products(shape)
    logits = shape.rows * shape.classes * shape.width
    places = shape.rows * CAPACITY
    return flops, moved + logits + 8 * places + SORTED * places


def main() -> None:
    heads = ("V", "d", "non-zeros a row", "GFLOP: products", "lists", "ratio")
    print("|", " | ".join((*heads, "GB: products", "lists", "ratio")), "|")
    print("| --- " * 9 + "|")
    for classes in (4_096, 16_384, 32_000, 128_000):
        for hidden in (512, 1024):
            for entries in (16, 64, CAPACITY + 1):
                shape = Shape(4096, classes, hidden, entries)
                fits = entries <= CAPACITY
                cells = [f"{classes:,}", str(hidden), str(entries) if fits else "129, no row fits"]
                listed_way = of_lists(shape) if fits else of_overflow(shape)
                pairs = zip(of_products(shape), listed_way, ("0f", "2f"), strict=True)
                for dense, listed, digits in pairs:
                    cells += [f"{dense / 1e9:.{digits}}", f"{listed / 1e9:.{digits}}"]
                    cells.append(f"{dense / listed:.2f}")
                print("|", " | ".join(cells), "|")


if __name__ == "__main__":
    main()
