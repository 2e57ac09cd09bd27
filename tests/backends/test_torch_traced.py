"""Traced tensors: graphs, transforms and exported programs."""

import io
import warnings
from itertools import combinations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="tests of tensors need torch")

from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

from layoutkit import (
    ArgumentError,
    Converter,
    DeviceError,
    DtypeError,
    ImageView,
    ShapeError,
    accumulate,
    collate,
    convert,
)
from layoutkit.accumulation import Accumulator
from layoutkit.options import split_sizes
from tests.helpers.reference import reference_convert

pytestmark = pytest.mark.budget(2)

FORMULA = {"scale": 1.5, "mean": (0.1, 0.2, 0.3), "std": (0.5, 2.0, 4.0)}
SIZES = [2, 3, 4]  # a second size makes torch.compile use a symbolic size
TO = Converter("bhwc->bchw", **FORMULA)
FOLD = Converter("bhwc->b(hwc)", dtype="float64")
UNFOLD = Converter("b(hwc)->bchw", h=4, c=3)
SAME = Converter("bhwc->bhwc")


def photos(count=2, width=5, **keywords):
    return torch.rand(count, 4, width, 3, **keywords)


def followed(function, **keywords):
    """Return the function compiled as one graph, with a backend that generates no code."""
    torch.compiler.reset()
    return torch.compile(function, fullgraph=True, backend="aot_eager", **keywords)


def through(x):
    """Return a conversion, a fold and the inverse, with a view among them."""
    return UNFOLD(FOLD(convert(TO(x), "bchw->bhwc")))


def saturated(x):
    return convert(x, "bhwc->chwb", dtype=torch.uint8, scale=300.0, casting="saturate")


def summed(x):
    return accumulate([(x, "bhwc"), (TO(x), "bchw"), (FOLD(x), "b(hwc)")], "bchw", h=4, w=5)


def sized(x):
    return convert(x.flatten(1), "b(hwc)->bcf", h=x.shape[1], c=3)


def clipped(x):
    return convert(x, "bhwc->bchw", clip=(0.2, 0.7), **FORMULA)


def laid(x):
    return convert(x, "bhwc->bchw", memory="bhwc", dtype="float64")


def boxed(x):
    return convert(x, "bhwc->bchw", pad_to={"h": 7, "w": 9}, fill=(0.1, 0.2, 0.3), scale=2.0)


def named(x):
    std = {"width": [1, 2, 3, 4, 5]}
    return convert(x, "batch height width c -> batch c (height width)", std=std)


def viewed(x):
    view = ImageView("bhwc", x)
    return view.forward_get("bchw", "float64")[:, 0] + view.forward_get()[..., 0]


CONVERTERS = {"to": TO, "fold": FOLD, "same": SAME}
WRITTEN = (through, saturated, summed, sized, clipped, laid, boxed, named, viewed)
FUNCTIONS = CONVERTERS | {function.__name__: function for function in WRITTEN}
each_function = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)


# ---- torch.compile -----------------------------------------------------------------------


@each_function
def test_compiled_as_one_graph_for_any_batch(function):
    compiled = followed(lambda x: function(x) * 1)
    for count in SIZES:
        x = photos(count)
        torch.testing.assert_close(compiled(x), function(x), rtol=0, atol=0)


def test_a_graph_holds_our_operator():
    graphs = []

    def keep(graph, inputs):
        graphs.append(graph)
        return graph

    from torch._dynamo.backends.common import aot_autograd

    torch.compiler.reset()
    x = photos()
    wanted = TO(x)
    compiled = torch.compile(TO, fullgraph=True, backend=aot_autograd(fw_compiler=keep))
    assert torch.equal(compiled(x), wanted)
    targets = {str(node.target) for node in graphs[0].graph.nodes if node.op == "call_function"}
    assert targets == {"layoutkit.convert.default"}


@pytest.mark.parametrize("function", [TO, through, summed, clipped, laid, boxed, named])
def test_compiled_gradients(function):
    compiled = followed(function)
    for count in SIZES:
        x, y = (photos(count).requires_grad_() for _ in range(2))
        y.data.copy_(x.data)
        (function(x) ** 2).sum().backward()
        (compiled(y) ** 2).sum().backward()
        torch.testing.assert_close(y.grad, x.grad)


def test_compiled_views_share_memory():
    def add(x):
        convert(x, "bhwc->b(hwc)").add_(1)
        return convert(x, "bhwc->bchw").sum()

    x = photos()
    y = x.clone()
    assert torch.equal(followed(add)(x), add(y))
    assert torch.equal(x, y)


def test_compiled_views_have_the_memory_that_is_asked_for():
    def planes(x):
        return ImageView("bhwc", x).forward_get("bchw", "float64", memory="bwhc")

    x = photos()
    y = followed(planes)(x)
    assert torch.equal(y, planes(x))
    assert y.stride() == planes(x).stride() == (60, 1, 3, 12)


@pytest.mark.parametrize("pattern", ["bhwc->bhwc", "b(hw)c->b(hw)c"])
def test_compiled_copies_of_transposed_memory_are_contiguous(pattern):
    x = torch.rand(2, 4, 5, 3).mT if pattern == "bhwc->bhwc" else torch.rand(2, 4, 5).mT
    y = followed(lambda x: convert(x, pattern))(x)
    assert torch.equal(y, x)
    assert y.stride() == convert(x, pattern).stride() != x.stride()


def test_compiled_out_is_written():
    def write(x, out):
        return convert(x, "bhwc->bchw", out=out) + 1

    x = photos()
    out = torch.zeros(2, 3, 4, 5)
    y = followed(write)(x, out)
    assert torch.equal(out, x.permute(0, 3, 1, 2))
    assert torch.equal(y, out + 1)


def test_a_view_that_is_put_in_a_graph_is_a_view_afterwards():
    view = ImageView("bhwc", photos())

    def put(x):
        view.forward_put("bhwc", x)
        return view.forward_get("bchw")

    x = photos(3)
    assert torch.equal(followed(put)(x), x.permute(0, 3, 1, 2))
    assert len(view) == 3
    assert torch.equal(view.forward_get("chwb"), x.permute(3, 1, 2, 0))


def test_an_accumulator_and_a_transform_compiled():
    add = Accumulator(("bhwc", "bchw"), "bhwc")
    x = photos()
    planes = x.permute(0, 3, 1, 2).contiguous()
    assert torch.equal(followed(lambda x, y: add([x, y]))(x, planes), x + x)
    mapped = followed(torch.vmap(lambda v: convert(v, "hwc->chw", scale=2.0)))
    assert torch.equal(mapped(x), planes * 2)


def test_constants_are_operands_of_a_graph():
    mean = torch.tensor([0.1, 0.2, 0.3])
    std = torch.tensor(2.0)

    def centred(x, mean, std):
        return convert(x, "bhwc->bchw", scale=1.5, mean=mean, std=std)

    compiled = followed(centred)
    for count in SIZES:
        x = photos(count)
        mean = mean + 1
        std = std + 1
        torch.testing.assert_close(compiled(x, mean, std), centred(x, mean, std))
    array = np.array([0.1, 0.2, 0.3], np.float32)
    compiled = followed(lambda x: centred(x, array, 2.0))
    torch.testing.assert_close(compiled(x), centred(x, array, 2.0))
    array += 1
    torch.testing.assert_close(compiled(x), centred(x, array, 2.0))


def test_constants_of_a_graph_have_the_precision_of_float64():
    x = 1e9 + torch.arange(120, dtype=torch.float64).reshape(2, 4, 5, 3) / 4
    mean = torch.full((3,), 1e9, dtype=torch.float64)

    def centred(x, mean):
        return convert(x, "bhwc->bchw", mean=mean, dtype=torch.float32)

    wanted = (x - 1e9).permute(0, 3, 1, 2).float()
    for result in (centred(x, mean), followed(centred)(x, mean)):
        torch.testing.assert_close(result, wanted, rtol=0, atol=0)
    learned = mean.clone().requires_grad_()
    torch.testing.assert_close(centred(x, learned).detach(), wanted, rtol=0, atol=0)


def test_constants_may_be_learned():
    x = photos()
    mean, std = ((torch.rand(3) + n).requires_grad_() for n in range(2))
    wanted = ((x * 1.5 - mean) / std).permute(0, 3, 1, 2)
    wanted.square().sum().backward()
    grads = [item.grad.clone() for item in (mean, std)]
    mean.grad = std.grad = None
    result = convert(x, "bhwc->bchw", scale=1.5, mean=mean, std=std)
    torch.testing.assert_close(result, wanted)
    result.square().sum().backward()
    torch.testing.assert_close([mean.grad, std.grad], grads)
    jacobian = torch.func.jacrev(lambda m: convert(x, "bhwc->bchw", mean=m).sum((0, 2, 3)))
    torch.testing.assert_close(jacobian(mean.detach()), torch.eye(3) * -40)


def test_equal_converters_share_a_compiled_function():
    def block(converter, x):
        return converter(x)

    compiled = followed(block)
    x = photos()
    for _ in range(12):  # more often than torch recompiles one function
        assert torch.equal(compiled(Converter("bhwc->bchw"), x), x.permute(0, 3, 1, 2))


def test_errors_of_a_graph_are_ours():
    with pytest.raises(Exception, match="rank 4"):
        followed(TO)(torch.rand(2, 3))


# ---- operators ---------------------------------------------------------------------------

CALLS = [
    (torch.float64, Converter("bhwc->bchw", dtype="float32", scale=2, mean=(1, 2, 3))),
    (torch.float32, Converter("bhwc->b(hwc)")),
    (torch.uint8, Converter("bhwc->bhwc")),
    (torch.float32, Converter("bh(wc)->cbhw", c=3)),
]


@pytest.mark.parametrize(("dtype", "converter"), CALLS)
def test_the_operator_is_sound(dtype, converter):
    make_fx(TO)(photos())  # registers the operator
    options, names, sizes = split_sizes(converter.to_dict())
    x = (photos() * 9).to(dtype)
    x = (x.flatten(2) if names else x).requires_grad_(dtype.is_floating_point)
    operator = torch.ops.layoutkit.convert.default
    result = torch.library.opcheck(operator, (x, options, names, sizes))
    assert set(result.values()) == {"SUCCESS"}


def test_the_operator_of_sums_is_sound():
    make_fx(TO)(photos())
    operator = torch.ops.layoutkit.accumulate.default
    x = photos(requires_grad=True)
    y = torch.rand(2, 60, requires_grad=True, dtype=torch.float64)
    layouts = ["bhwc", "b(hwc)"]
    for names, sizes in [([], []), (["h", "c"], [4, 3])]:
        parts = [x, y] if names else [x, x.detach().double()]
        further = (layouts if names else ["bhwc", "bhwc"], "bchw", "", names, sizes)
        result = torch.library.opcheck(operator, (parts, *further))
        assert set(result.values()) == {"SUCCESS"}


def test_operators_in_a_graph_can_be_mapped():
    graph = make_fx(lambda x: summed(x) + TO(x))(photos())
    assert "layoutkit" in graph.code
    x = photos(14).unflatten(0, (7, 2))
    wanted = torch.stack([summed(item) + TO(item) for item in x])
    torch.testing.assert_close(torch.vmap(graph)(x), wanted)


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx(mode):
    graph = make_fx(through, tracing_mode=mode)(photos())
    x = photos(2 if mode != "symbolic" else 5)
    assert torch.equal(graph(x), through(x))


# ---- without data ------------------------------------------------------------------------


@each_function
def test_meta_tensors(function):
    x = photos()
    meta = torch.empty(2, 4, 5, 3, device="meta")
    y = function(meta)
    wanted = function(x)
    assert y.device.type == "meta"
    assert (y.shape, y.dtype, y.stride()) == (wanted.shape, wanted.dtype, wanted.stride())


def test_what_is_wrong_is_said_without_data():
    meta = torch.empty(2, 4, 5, 3, device="meta")
    with pytest.raises(ShapeError, match="rank 2"):
        convert(meta, "bc->cb")
    with pytest.raises(DtypeError, match="same_kind"):
        convert(meta, "bhwc->bchw", dtype="uint8")
    with pytest.raises(DtypeError, match="torch has no dtype"):
        convert(meta, "bhwc->bchw", dtype="float8_e3m4")
    with pytest.raises(ArgumentError, match="copy=False"):
        convert(meta, "bhwc->bchw", copy=False)
    with pytest.raises(ShapeError, match="mean has 2 values and axis c has size 3"):
        convert(meta, "bhwc->bchw", dtype="float32", mean=[1, 2])
    with pytest.raises(ShapeError, match="out has shape"):
        convert(meta, "bhwc->bchw", out=torch.empty(3, 3, 4, 5, device="meta"))
    assert convert(meta, "bhwc->bhwc", copy=False) is meta
    with pytest.raises(DeviceError, match="x is on meta and holds no data, but out is on cpu"):
        convert(meta, "bhwc->bchw", out=torch.empty(2, 3, 4, 5))
    with pytest.raises(DeviceError, match="part 0 is on cpu, but part 1 is on meta"):
        accumulate([(photos(), "bhwc"), (meta, "bhwc")], "bchw")


def test_inference_mode():
    with torch.inference_mode():
        x = photos()
        out = torch.empty(2, 3, 4, 5)
        assert convert(x, "bhwc->bchw", out=out) is out
        assert torch.equal(convert(x, "bhwc->bchw"), out)
        assert torch.equal(out, x.permute(0, 3, 1, 2))


# ---- torch.func and forward mode ---------------------------------------------------------


def test_func_gradients():
    x = photos(dtype=torch.float64)
    recorded = x.clone().requires_grad_()
    (through(recorded) ** 2).sum().backward()
    result = torch.func.grad(lambda v: (through(v) ** 2).sum())(x)
    torch.testing.assert_close(result, recorded.grad)
    y, back = torch.func.vjp(summed, x)
    torch.testing.assert_close(y, summed(x))
    torch.testing.assert_close(back(torch.ones_like(y))[0].shape, x.shape)


def test_func_jacobians_agree():
    x = torch.rand(2, 1, 2, 3, dtype=torch.float64)
    backward, forward = (make(TO)(x) for make in (torch.func.jacrev, torch.func.jacfwd))
    torch.testing.assert_close(backward, forward)
    wanted = torch.stack([TO(x + d.view_as(x)) - TO(x) for d in torch.eye(x.numel()).double()], -1)
    torch.testing.assert_close(backward.flatten(4), wanted)


def test_vmap_over_any_axis():
    x = photos(3).unsqueeze(2).repeat(1, 1, 2, 1, 1)  # the mapped axis is in the middle
    result = torch.vmap(TO, in_dims=2, out_dims=1)(x)
    torch.testing.assert_close(result, torch.stack([TO(x[:, :, n]) for n in range(2)], 1))


def test_tangents_are_carried():
    x = photos(dtype=torch.float64)
    way = photos(dtype=torch.float64)
    for function in (TO, FOLD, through, laid, named):
        _, tangent = torch.func.jvp(function, (x,), (way,))
        zero = torch.zeros_like(x)
        torch.testing.assert_close(tangent, function(way) - function(zero))
        with forward_ad.dual_level():
            y = forward_ad.unpack_dual(function(forward_ad.make_dual(x, way)))
            torch.testing.assert_close(y.primal, function(x))
            torch.testing.assert_close(y.tangent, tangent)
            total = accumulate([(forward_ad.make_dual(x, way), "bhwc")], "bchw")
            moved = way.permute(0, 3, 1, 2)
            torch.testing.assert_close(forward_ad.unpack_dual(total).tangent, moved)


# ---- batched gradients -------------------------------------------------------------------

FUNCTIONS = [
    Converter("bhwc->bchw", **FORMULA),
    Converter("bhwc->bf", std=2.0),
    Converter("bhwc->bchw", clip=(0.2, 0.8)),
    Converter("bhwc->bchw", channels=(2, 2, 0)),
    Converter("bhwc->bchw", pad_to={"h": 7}),
    Converter("bhwc->bchw", memory="bhwc"),
    lambda x: UNFOLD(FOLD(x)),
    lambda x: accumulate([(x, "bhwc"), (2 * x, "bhwc")], "bchw"),
    lambda x: collate(list(x), "hwc->bchw", h=2, w=2),
    lambda x: collate(list(x), "hwc->bchw", h=2, w=3, resize="bilinear"),
    lambda x: ImageView("bhwc", x).forward_get("bchw"),
]


@pytest.mark.budget(11)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_batched_gradients_are_those_of_one_at_a_time(function):
    x = photos(1, 3, dtype=torch.float64, requires_grad=True)
    y = function(x)
    grads = torch.rand(3, *y.shape, dtype=torch.float64)
    (batched,) = torch.autograd.grad(y, x, grads, is_grads_batched=True, retain_graph=True)
    single = [torch.autograd.grad(y, x, grad, retain_graph=True)[0] for grad in grads]
    torch.testing.assert_close(batched, torch.stack(single))
    jacobians = [
        torch.autograd.functional.jacobian(function, x.detach(), vectorize=vectorize)
        for vectorize in (False, True)
    ]
    torch.testing.assert_close(*jacobians)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_gradients_pass_batched_checks(function):
    x = photos(1, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(function, (x,), check_batched_grad=True, fast_mode=True)
    assert torch.autograd.gradgradcheck(function, (x,), check_batched_grad=True, fast_mode=True)


# ---- exported programs -------------------------------------------------------------------


class Model(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize("function", [TO, through, saturated, clipped, laid, viewed])
@pytest.mark.parametrize("strict", [False, True])
def test_exported_programs_need_no_layoutkit(function, strict):
    torch.compiler.reset()
    sizes = {0: torch.export.Dim("batch"), 2: torch.export.Dim("width", min=2)}
    program = torch.export.export(
        Model(function), (photos(),), dynamic_shapes=(sizes,) if function is not viewed else None,
        strict=strict,
    )  # fmt: skip
    assert "layoutkit" not in program.graph_module.code
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    x = photos(3, 7) if function is not viewed else photos()
    torch.testing.assert_close(torch.export.load(file).module()(x), function(x))


def dynamic(shape, axes, kind):
    """Return the dynamic sizes of axes; a folded axis of 24 stays a multiple of 4."""
    if kind == "auto":
        return dict.fromkeys(axes, torch.export.Dim.AUTO)
    sizes = {axis: torch.export.Dim(f"size{axis}") for axis in axes}
    return {axis: 4 * size if shape[axis] == 24 else size for axis, size in sizes.items()}


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("kind", ["auto", "named"])
@pytest.mark.parametrize(
    ("pattern", "shape", "sizes"),
    [
        ("bhwc->bchw", (2, 6, 8, 3), {}),
        ("b(hw)c->bchw", (2, 24, 3), {"w": 4}),
        ("b(hw)c->bh(wc)", (2, 24, 3), {"h": 4}),
        ("bhwc->b(hwc)", (2, 6, 8, 3), {}),
        ("bhwc->chwb", (2, 6, 8, 3), {}),
        ("bhwc->bhwc", (2, 6, 8, 3), {}),
    ],
)
def test_exported_programs_take_every_size_of_dynamic_axes(pattern, shape, sizes, kind, count):
    """Sizes that equal the sizes of other axes, too."""
    converter = Converter(pattern, **sizes)
    for axes in combinations(range(len(shape)), min(count, len(shape))):
        program = torch.export.export(
            Model(converter), (torch.rand(shape),), dynamic_shapes=(dynamic(shape, axes, kind),)
        ).module()
        for factor in (2, 3):
            x = torch.rand([n * factor if i in axes else n for i, n in enumerate(shape)])
            assert torch.equal(program(x), converter(x))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", [TO, through, saturated, clipped])
def test_onnx(function):
    pytest.importorskip("onnxscript", reason="PyTorch exports ONNX with onnxscript")
    runtime = pytest.importorskip("onnxruntime", reason="what runs the exported file")
    program = torch.onnx.export(
        Model(function), (photos(),), dynamo=True, verbose=False,
        dynamic_shapes=({0: "batch", 2: "width"},),
    )  # fmt: skip
    assert {node.domain for node in program.model.graph} == {""}
    file = io.BytesIO()
    program.save(file)
    session = runtime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    for count, width in [(1, 5), (4, 7)]:
        x = photos(count, width)
        (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        torch.testing.assert_close(torch.from_numpy(y), function(x))


def test_traced_programs_hold_no_data_and_no_sizes():
    for function in (TO, through, FOLD, summed):
        with warnings.catch_warnings():
            warnings.simplefilter("error", torch.jit.TracerWarning)
            program = torch.jit.trace(function if function is summed else Model(function), photos())
        x = photos(4, 5 if function is summed else 9)
        torch.testing.assert_close(program(x), function(x))


# ---- torch operations --------------------------------------------------------------------

CASES = [
    ("bhwc->bchw", {}),
    ("bhwc->w(bch)", {"dtype": "float64", **FORMULA}),
    ("bhwc->tbhwc", {}),
    ("bhwc->b(hwc)t", {"dtype": "int16", "casting": "unsafe", "scale": 300}),
    ("bhwc->bchw", {"dtype": "uint8", "scale": 300, "casting": "saturate"}),
    ("bhwc->bf", {"copy": True}),
]


@pytest.mark.parametrize(("pattern", "keywords"), CASES)
def test_words_say_what_kernels_do(pattern, keywords):
    x = photos(dtype=torch.float32)
    y = torch.vmap(lambda v: convert(v, pattern, **keywords))(x[None])[0]
    wanted = reference_convert(x.numpy(), pattern, **keywords)
    assert y.is_contiguous()
    np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-6, atol=1e-7, strict=True)


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "float64"])
def test_traced_formulas_and_sums_keep_the_digits_of_wide_dtypes(dtype):
    top = 2**31 - 1
    x = torch.tensor([[top - 60, top]], dtype=getattr(torch, dtype))
    for keywords in ({"mean": top}, {"mean": [top, top], "clip": (0, top)}):
        y = torch.vmap(lambda v, k=keywords: convert(v, "bc->cb", dtype="float32", **k))(x[None])
        assert y[0].tolist() == [[-60.0], [0.0]]
    part = torch.tensor([[-(2.0**31)] * 2], dtype=torch.float32)
    parts = lambda v: [(v, "bc"), (part, "bc")]
    total = torch.vmap(lambda v: accumulate(parts(v), "bc", dtype="float32"))(x[None])
    assert total[0].tolist() == [[-61.0, -1.0]]


@pytest.mark.parametrize(
    ("pattern", "sizes", "letters"),
    [
        ("b t (head k)->(head b) t k", {"head": 3}, ("bt(hk)->(hb)tk", {"h": 3})),
        ("b...->(b...)", {}, ("bhw->(bhw)", {})),
        ("b...c->c(b...)", {}, ("bhc->c(bh)", {})),
    ],
)
def test_names_and_ellipsis_in_folds(pattern, sizes, letters):
    x = torch.rand(2, 4, 12, dtype=torch.float64, requires_grad=True)
    to = Converter(pattern, **sizes)
    wanted = reference_convert(x.detach().numpy(), letters[0], **letters[1])
    for run in (to, followed(to), lambda v: torch.vmap(to)(v[None])[0]):
        y = run(x)
        np.testing.assert_array_equal(y.detach().numpy(), wanted)
        (grad,) = torch.autograd.grad((y * y).sum() / 2, x)
        torch.testing.assert_close(grad, x)


def test_mixed_parts_of_a_traced_sum():
    x = photos()
    array = np.ones((2, 3, 4, 5), np.float32)
    result = torch.vmap(lambda v: accumulate([(v, "bhwc"), (array, "bchw")], "bhwc"))(x[None])
    torch.testing.assert_close(result[0], x + 1)
