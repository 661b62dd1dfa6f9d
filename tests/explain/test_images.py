"""Images are audited like texts: patches as a floating tensor of the batch, or cut from pixels."""

from math import isnan

import pytest
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.attention import padding
from regard.core.axes import Patches
from regard.core.errors import UserError
from regard.core.inputs import Image, Input
from regard.core.protocols import Batch, Carry
from regard.explain import AuditSettings, audited_site, run_tests
from regard.explain.gradient_reach import WITH, WITHOUT, gradient_reach
from regard.explain.importance import IMPORTANCES, leave_one_out
from regard.explain.tests import TESTS
from regard.layers.multihead import SelfAttention
from regard.layers.pool import AttentionPool
from regard.outputs.classes import Classes
from regard.tasks.abilities import LastPrediction, Subject

D, SIDE = 4, 2
"""The width of a patch: 2 x 2 pixels."""
QUICK = AuditSettings(shuffles=3, starts=2, steps=4)


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.explain.importance.INTEGRATION_STEPS", 2)


class PatchClassifier(nn.Module):
    """One layer of self-attention over patches, and attention pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = SelfAttention(D, heads=2, axes=("patch", "patch"))
        self.pool = AttentionPool("dot", D, axes=("text", "patch"))
        self.output = nn.Linear(D, 3)

    def forward(self, batch: Batch, carry: Carry | None = None) -> Classes:
        patches = batch["patches"]  # [B,T,D]
        mask = padding(batch["lengths"]) if "lengths" in batch else None
        mixed = patches + self.layer(patches, mask)
        return Classes(self.output(self.pool(mixed, mask)[:, 0]))


class TokenClassifier(PatchClassifier):
    """The same over the vectors of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(12, D)

    def forward(self, batch: Batch, carry: Carry | None = None) -> Classes:
        return super().forward({**batch, "patches": self.table(batch["tokens"])})


class CutPatches(nn.Module):
    """Pixels to patches."""

    def forward(self, pixels: Tensor) -> Float[Tensor, "B T D"]:
        return nn.functional.unfold(pixels, SIDE, stride=SIDE).transpose(1, 2)


class PixelClassifier(nn.Module):
    """The same over patches that it cuts from pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.cut, self.patches = CutPatches(), PatchClassifier()

    def forward(self, batch: Batch, carry: Carry | None = None) -> Classes:
        output: Classes = self.patches({"patches": self.cut(batch["pixels"])})
        return output


def seeded(model: nn.Module) -> nn.Module:
    torch.manual_seed(3)
    for each in model.parameters():
        nn.init.normal_(each, std=0.7)
    return model.double().eval()


def logits(model: nn.Module, batch: Batch) -> Float[Tensor, "B C"]:
    return Classes.of(model, batch).logits


def patches(lengths: list[int]) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    values = torch.randn(len(lengths), max(lengths), D, generator=generator, dtype=torch.float64)
    return {"patches": values * real[..., None], "lengths": torch.tensor(lengths)}


def subject(*batches: Batch) -> Subject:
    return Subject(batches=batches, predict=logits, axis="patch", inputs="patches")


@pytest.mark.parametrize("site", ["pool", "layer"])
def test_a_classifier_of_patches_is_audited_by_all_tests(site: str) -> None:
    batch = patches([6, 4, 5])
    model = seeded(PatchClassifier())
    found = run_tests(audited_site(model, site, subject(batch)), [batch], settings=QUICK)
    assert [verdict.test for verdict in found.verdicts] == list(TESTS)
    assert found.examples == 3
    for verdict in found.verdicts:
        assert verdict.figures
        assert not any(isnan(each.mean) for each in verdict.figures.values())


def test_floating_inputs_give_the_numbers_of_the_same_vectors_from_an_embedding() -> None:
    tokens = {
        "tokens": torch.tensor([[3, 4, 5, 6], [7, 8, 9, 0]]),
        "lengths": torch.tensor([4, 3]),
    }
    model = seeded(TokenClassifier())
    assert isinstance(model, TokenClassifier)
    as_tokens = Subject(batches=[tokens], predict=logits, axis="patch")
    vectors = {"patches": model.table(tokens["tokens"]).detach(), "lengths": tokens["lengths"]}
    plain = PatchClassifier().double().eval()
    plain.load_state_dict(model.state_dict(), strict=False)
    by_tokens = run_tests(audited_site(model, "pool", as_tokens), [tokens], settings=QUICK)
    by_vectors = run_tests(audited_site(plain, "pool", subject(vectors)), [vectors], settings=QUICK)
    for one, other in zip(by_tokens.verdicts, by_vectors.verdicts, strict=True):
        assert one.columns.keys() == other.columns.keys()
        for name, values in one.columns.items():
            assert values == pytest.approx(other.columns[name], nan_ok=True), (one.test, name)


def test_gradients_are_those_of_the_patches_with_fixed_attention() -> None:
    batch = patches([3])
    model = seeded(PatchClassifier())
    site = audited_site(model, "pool", subject(batch))
    weights, small = site.predict(batch).weights, 1e-6

    def top(more: float) -> Tensor:
        moved = batch["patches"].clone()
        moved[0, 1, 2] += more
        return site.predict({**batch, "patches": moved}, weights=weights).probabilities.max()

    with torch.no_grad():
        slope = (top(small) - top(-small)) / (2 * small)
    leaf = site.embed(batch).detach().requires_grad_()
    value = site.predict(batch, weights=weights, vectors=leaf).probabilities.max()
    (gradient,) = torch.autograd.grad(value, leaf)
    assert float(gradient[0, 1, 2]) == pytest.approx(float(slope), rel=1e-5)
    norms = IMPORTANCES["gradient"](site, batch)
    torch.testing.assert_close(norms[0], gradient[0].norm(dim=1))


def test_a_patch_that_is_left_out_is_not_in_the_batch() -> None:
    batch = patches([3, 2])
    site = audited_site(seeded(PatchClassifier()), "pool", subject(batch))
    keep = torch.tensor([[True, False, True], [True, True, False]])
    left = site.select(batch, keep)
    torch.testing.assert_close(left["patches"][0], batch["patches"][0, [0, 2]])
    assert left["lengths"].tolist() == [2, 2]
    whole = {"patches": batch["patches"][:1], "lengths": torch.tensor([3])}
    fewer = {"patches": batch["patches"][:1, [0, 2]], "lengths": torch.tensor([2])}
    with torch.no_grad():
        change = site.predict(whole).probabilities - site.predict(fewer).probabilities
    torch.testing.assert_close(leave_one_out(site, batch)[0, 1], change.abs().sum() / 2)


def pixels_of(images: Float[Tensor, "B 1 H W"]) -> Subject:
    """Patches are removed by painting them black."""

    def real(batch: Batch) -> Bool[Tensor, "B T"]:
        count, _, height, width = batch["pixels"].shape
        return torch.ones(count, (height // SIDE) * (width // SIDE), dtype=torch.bool)

    def keep(batch: Batch, kept: Bool[Tensor, "B T"]) -> Batch:
        height, width = batch["pixels"].shape[2:]
        grid = kept.view(-1, 1, height // SIDE, width // SIDE).to(batch["pixels"])
        return {"pixels": batch["pixels"] * nn.functional.interpolate(grid, scale_factor=SIDE)}

    return Subject(
        batches=[{"pixels": images}],
        predict=logits,
        axis="patch",
        inputs="pixels",
        real=real,
        embedding=lambda model: model.get_submodule("cut"),
        keep=keep,
    )


def test_an_input_of_another_shape_is_audited_through_the_module_that_embeds_it() -> None:
    images = torch.rand(3, 1, 4, 6, generator=torch.Generator().manual_seed(2)).double()
    model, found = seeded(PixelClassifier()), pixels_of(images)
    site = audited_site(model, "patches.pool", found)
    assert site.embed({"pixels": images}).shape == (3, 6, D)
    keep = torch.ones(3, 6, dtype=torch.bool)
    keep[:, 4] = False
    black = site.select({"pixels": images}, keep)["pixels"]
    assert (black[:, :, 2:4, 2:4] == 0).all()
    assert (black[:, :, :2] == images[:, :, :2]).all()
    result = run_tests(site, found.batches, settings=QUICK)
    assert [verdict.test for verdict in result.verdicts] == list(TESTS)
    for verdict in result.verdicts:
        assert not any(isnan(each.mean) for each in verdict.figures.values())


def test_what_an_image_needs_is_in_the_error() -> None:
    batch = {"pixels": torch.rand(1, 4).double()}
    site = audited_site(
        seeded(PatchClassifier()),
        "pool",
        Subject(batches=[batch], predict=logits, axis="patch", inputs="pixels"),
    )
    with pytest.raises(UserError, match="name the module that returns vectors"):
        site.embed(batch)
    ragged = {"patches": patches([3, 3])["patches"]}
    site = audited_site(seeded(PatchClassifier()), "pool", subject(ragged))
    with pytest.raises(UserError, match="without lengths; give the subject `keep`"):
        site.select(ragged, torch.tensor([[True, True, False], [True, False, False]]))
    with pytest.raises(UserError, match=r"attends over its axis 'patch'; .* over position"):
        audited_site(seeded(PatchClassifier()), "pool", Subject(batches=[batch], predict=logits))


class ImageTask:
    """The class of an image, as the last prediction."""

    def last_prediction(self, model: nn.Module, given: Input) -> LastPrediction:
        assert isinstance(given, Image)
        inputs = CutPatches()(given.pixels[None].double() / 255)

        def log_probability() -> Float[Tensor, ""]:
            return logits(model, {"patches": inputs}).log_softmax(1).max()

        return LastPrediction(
            axis=Patches.grid(2, 2, 4, 4), inputs=inputs, log_probability=log_probability
        )


def test_gradients_reach_the_patches_of_an_image() -> None:
    model = seeded(PatchClassifier())
    image = Image(torch.arange(16, dtype=torch.uint8).view(1, 4, 4) * 16)
    found = gradient_reach(ImageTask(), model, image)
    assert found.axis.kind == "patches"
    last = ImageTask().last_prediction(model, image)
    last.inputs.requires_grad_()
    (gradient,) = torch.autograd.grad(last.log_probability(), last.inputs)
    assert found.norms[WITH] == pytest.approx(gradient[0].norm(dim=1).tolist(), rel=1e-5)
    assert found.norms[WITHOUT] == (0.0,) * 4
