"""The words of the convolution kernels' arguments, beside those that every kind has
(`treadle.backends.cpu.gemm.arguments`)."""

from __future__ import annotations

from enum import IntEnum

from treadle.backends.cpu.gemm.arguments import FIRST as _FIRST
from treadle.backends.cpu.gemm.arguments import ProductWord, TileWord

FIRST = _FIRST + 1
"""Behind the word of pairs."""


class ConvWord(IntEnum):
    """The words of Kind.CONVOLUTION and Kind.FILTER_GRADIENT."""

    IMAGES = FIRST
    OUT_Y = FIRST + 1
    OUT_X = FIRST + 2
    IN_Y = FIRST + 3
    CHANNELS = FIRST + 4  # of the input, all groups
    GROUP_CHANNELS = FIRST + 5
    GROUP_FEATURES = FIRST + 6
    GROUP_PANELS = FIRST + 7  # panels of features in a group
    PANELS = FIRST + 8  # and in all
    TAPS_Y = FIRST + 9
    TAPS_X = FIRST + 10
    STRIDE_Y = FIRST + 11
    STRIDE_X = FIRST + 12
    DILATION_Y = FIRST + 13
    DILATION_X = FIRST + 14
    PAD_Y = FIRST + 15
    IN_DILATION_Y = FIRST + 16
    IN_DILATION_X = FIRST + 17
    X_FIRST = FIRST + 18  # input columns that the padded image holds
    X_STOP = FIRST + 19
    ROW_START = FIRST + 20  # elements of zeros before them in each row
    ROW_END = FIRST + 21  # and elements before the zeros behind them
    ROW_RUN = FIRST + 22  # 1 if these columns with their channels are contiguous
    PADDED_X = FIRST + 23
    PIXEL = FIRST + 24  # elements between pixels of the padded (or the given) image
    LINE = FIRST + 25  # and between its rows
    IN_PLACE = FIRST + 26
    PLACE_OFFSET = FIRST + 27  # elements from the image to the first pixel, in place
    SLAB_ROWS = FIRST + 28  # output rows per padded copy
    SLABS = FIRST + 29  # such slabs in an image
    TILES = FIRST + 30  # a row of pixels is cut into tiles, as in a product
    TILE_LOW = FIRST + 31
    TILE_EXTRA = FIRST + 32
    K = FIRST + 33
    CHUNK_PANELS = FIRST + 34  # panels of the filter that are packed at once
    EPILOGUE_ROWS = FIRST + 35
    GRID_UNITS = FIRST + 36
    GRID_PANELS = FIRST + 37
    FILTER_OFFSET = FIRST + 38  # bytes from a thread's scratch to the packed filter
    IN_X = FIRST + 39
    PAD_X = FIRST + 40
    IN_Z = FIRST + 41  # images of a volume
    OUT_Z = FIRST + 42  # and of its result; IMAGES counts those of all
    TAPS_Z = FIRST + 43
    STRIDE_Z = FIRST + 44
    DILATION_Z = FIRST + 45
    PAD_Z = FIRST + 46
    TOGETHER = FIRST + 47  # images whose pixels lie side by side
    PHASE = FIRST + 48  # columns that their rows have for each phase of a stride
    PLACES_OFFSET = FIRST + 49  # bytes from a thread's scratch to its table of segments
    RESULT_OFFSET = FIRST + 50  # ... and to a row of results of these images
    RUN = FIRST + 51  # elements of a segment
    SEGMENTS = FIRST + 52  # their number; the offsets (in bytes), each and a 0, follow
    OFFSETS = FIRST + 53


class PairWord(IntEnum):
    """What convolutions of bfloat16 have beside."""

    PAIRED = _FIRST
    """Numbers that pairs are made of, when one may be missing: channels of a group, or
    images."""


class FilterWord(IntEnum):
    """Words of Kind.FILTER_GRADIENT and Kind.SUM_PARTIALS beside those of ConvWord."""

    PARTIALS = ConvWord.RUN  # number of partial sums; they lie at the scratch's start
    FEATURES = ConvWord.RUN + 1
    PLANES_OFFSET = ConvWord.RUN + 2  # bytes from a thread's scratch to its planes
    PANEL_OFFSET = ConvWord.RUN + 3  # ... and to its packed panel of B
    PLANAR = ConvWord.RUN + 4  # 1 if the padded image is a plane, or read as it lies
    PLANE = ConvWord.RUN + 5  # elements of a plane
    PHASE = ConvWord.RUN + 6  # elements of one phase of a row
    A_STEP = ConvWord.RUN + 7  # elements between a tile's rows of A
    C_STEP = ConvWord.RUN + 8  # and between its rows of a partial sum
    STEPS = ConvWord.RUN + 9  # how many row groups there are
    SEGMENTS_OFFSET = ConvWord.RUN + 10  # bytes to the table of segments that it makes
    AT_ONCE = ConvWord.RUN + 11  # images that the micro-kernel sums over in one go
    IMAGE = ConvWord.RUN + 12  # elements of a plane that belong to one image
    ALONG = ConvWord.RUN + 13  # elements between a tile's columns of A
    NEXT_ROW = ConvWord.RUN + 14  # ... and between what rows of outputs meet
    TABLE = ConvWord.RUN + 15
    """Of row groups: the element offsets of each in A and C."""


class DepthwiseWord(IntEnum):
    """Words of Kind.DEPTHWISE and Kind.DEPTHWISE_FILTER beside those of ConvWord; the
    first two are those of FilterWord."""

    PARTIALS = FilterWord.PARTIALS
    FEATURES = FilterWord.FEATURES
    BLOCK_Y = ConvWord.RUN + 2  # outputs that share a table of pixels
    BLOCK_X = ConvWord.RUN + 3
    BLOCKS_Y = ConvWord.RUN + 4  # such blocks in an image
    BLOCKS_X = ConvWord.RUN + 5
    LINE = ConvWord.RUN + 6  # entries in a line of the table
    TAPS_OFFSET = ConvWord.RUN + 7  # bytes from a thread's scratch to its table of taps
    OUTPUTS_OFFSET = ConvWord.RUN + 8  # ... to that of outputs
    TABLE_OFFSET = ConvWord.RUN + 9  # ... to that of pixels
    MET_OFFSET = ConvWord.RUN + 10  # ... and to the taps that a row of outputs meets
    ASKED_Y = ConvWord.RUN + 11  # rows of taps whose pixels are new to each output
    ASKED_X = ConvWord.RUN + 12  # and columns
    COLUMNS = ConvWord.RUN + 13  # channels that one turn over some blocks is for
    COLUMNS_OFFSET = ConvWord.RUN + 14  # bytes to their factors or sums, if not 0
    APART = ConvWord.RUN + 15  # elements between rows of these
    FACTOR_Y = ConvWord.RUN + 16  # ... and between those of taps
    FACTOR_X = ConvWord.RUN + 17
    BLOCKS = ConvWord.RUN + 18  # that each of these turns goes over
    NEAR_OFFSET = ConvWord.RUN + 19  # bytes to what a block meets, copied
    COUNT = ConvWord.RUN + 20


class WinogradWord(IntEnum):
    """What Kind.WINOGRAD and Kind.WINOGRAD_FILTER have instead of tiles of pixels and
    segments. The second has the first two words of FilterWord, too."""

    TILES_X = ConvWord.TILES  # squares of outputs in a row
    PART = ConvWord.TILE_LOW  # of which so many are transformed at once
    PLANE = ConvWord.TILE_EXTRA  # elements between the numbers of a tile of inputs
    PITCH = ConvWord.EPILOGUE_ROWS  # and between tiles
    FILTER_PLANE = ConvWord.PLACES_OFFSET  # ... and between the numbers of a filter
    STREAMS = ConvWord.RESULT_OFFSET  # 1 if it is transformed where it is met
    SUMS_PLANE = ConvWord.RUN + 2  # elements between the numbers of sums
    INPUTS_OFFSET = ConvWord.RUN + 3  # bytes from a thread's scratch to tiles of inputs
    SUMS_OFFSET = ConvWord.RUN + 4  # ... and to sums of products
    PIECE = ConvWord.RUN + 5  # channels that are summed up, or multiplied, at once
    COUNT = ConvWord.RUN + 6
    LINES_OFFSET = ConvWord.RUN + 6  # bytes to four padded rows of outputs' gradients
    OUTPUTS_OFFSET = ConvWord.RUN + 7  # ... and to tiles of them
    SUMS_STEP = ConvWord.RUN + 8  # elements between sums that stay from unit to unit
    TILES = ConvWord.RUN + 9  # that are summed up at once
    FILTER_COUNT = ConvWord.RUN + 10


_PATCHES = _FIRST + len(ProductWord) + len(TileWord)


class PatchWord(IntEnum):
    """What a convolution that is a product of patches has beside the words of a product
    of bfloat16, whose rows are pixels of a *line*: of a row of the result, or of rows
    or images, where these follow each other; for the gradient by the filter, whose k
    are pixels, there is one."""

    IN_Z = _PATCHES
    IN_Y = _PATCHES + 1
    IN_X = _PATCHES + 2
    OUT_Z = _PATCHES + 3
    OUT_Y = _PATCHES + 4
    OUT_X = _PATCHES + 5
    STRIDE_Z = _PATCHES + 6
    STRIDE_Y = _PATCHES + 7
    STRIDE_X = _PATCHES + 8
    PAD_Z = _PATCHES + 9
    PAD_Y = _PATCHES + 10
    PAD_X = _PATCHES + 11
    DILATION_Z = _PATCHES + 12
    DILATION_Y = _PATCHES + 13
    DILATION_X = _PATCHES + 14
    TAPS_Y = _PATCHES + 15
    TAPS_X = _PATCHES + 16
    CHANNELS = _PATCHES + 17  # of a group
    GROUPS = _PATCHES + 18
    RUN = _PATCHES + 19  # elements of a segment ...
    SEGMENTS = _PATCHES + 20  # ... and their number, ...
    ACROSS = _PATCHES + 21  # ... and that in a row of taps
    LINES = _PATCHES + 22  # lines of an image
    # Each task writes these, for what it works on.
    GROUP = _PATCHES + 23
    IMAGE = _PATCHES + 24
    LINE = _PATCHES + 25  # of the image


PATCH_WORDS = _PATCHES + len(PatchWord)
