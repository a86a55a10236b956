"""Photos of every mode and profile become sRGB."""

import numpy as np
import pytest
from PIL import Image, ImageCms

from manifind.io.image import read_photo
from tests.features.photo_files import Pixels, difference, noise_ratio, png, saved, scene, swapped_profile, tiff

GREY: Pixels = np.arange(256, dtype=np.uint8).reshape(16, 16)
GREY3: Pixels = np.repeat(GREY[:, :, None], 3, axis=2)


class TestModes:
    @pytest.mark.parametrize("kind", ["PNG", "TIFF", "BMP", "JPEG", "PPM", "JPEG2000"])
    def test_grey_is_rgb_of_equal_channels(self, kind: str) -> None:
        photo = read_photo(saved(Image.fromarray(GREY), kind))
        assert difference(photo.pixels, GREY3) <= (3 if kind == "JPEG" else 0)

    @pytest.mark.parametrize("kind", ["PNG", "TIFF", "BMP", "PPM"])
    def test_one_bit_is_black_and_white(self, kind: str) -> None:
        image = Image.fromarray(GREY).convert("1")
        expected = np.asarray(image.convert("RGB"))
        assert set(np.unique(expected)) == {0, 255}
        np.testing.assert_array_equal(read_photo(saved(image, kind)).pixels, expected)

    @pytest.mark.parametrize("kind", ["PNG", "TIFF", "GIF", "BMP"])
    def test_a_palette_is_looked_up(self, kind: str) -> None:
        colours: Pixels = np.random.default_rng(0).integers(0, 256, (256, 3), dtype=np.uint8)
        image = Image.fromarray(GREY).convert("P")
        image.putpalette(colours.tobytes())
        np.testing.assert_array_equal(read_photo(saved(image, kind)).pixels, colours[GREY])

    @pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
    def test_what_is_transparent_is_laid_on_white(self, kind: str) -> None:
        rng = np.random.default_rng(1)
        pixels: Pixels = rng.integers(0, 256, (16, 16, 4), dtype=np.uint8)
        share = pixels[:, :, 3:] / 255
        expected = np.rint(pixels[:, :, :3] * share + 255 * (1 - share))
        photo = read_photo(saved(Image.fromarray(pixels), kind, **({"exact": True} if kind == "WEBP" else {})))
        assert difference(photo.pixels, expected) <= 1

    def test_grey_with_alpha_is_laid_on_white(self) -> None:
        pixels: Pixels = np.random.default_rng(2).integers(0, 256, (16, 16, 2), dtype=np.uint8)
        share = pixels[:, :, 1:] / 255
        expected = np.repeat(np.rint(pixels[:, :, :1] * share + 255 * (1 - share)), 3, axis=2)
        image = Image.merge("LA", [Image.fromarray(pixels[:, :, channel]) for channel in range(2)])
        assert difference(read_photo(saved(image, "PNG")).pixels, expected) <= 1

    def test_a_transparent_colour_of_a_palette_is_white(self) -> None:
        image = Image.new("P", (4, 4), 1)
        image.putpalette([255, 0, 0, 0, 0, 255])
        image.putpixel((2, 1), 0)
        for kind in ("PNG", "GIF"):
            pixels = read_photo(saved(image, kind, transparency=1)).pixels
            assert pixels[1, 2].tolist() == [255, 0, 0]
            assert pixels[0, 0].tolist() == [255, 255, 255]

    def test_the_inks_of_a_jpeg_are_not_inverted(self) -> None:
        inks = Image.fromarray(scene(64, 48)).convert("CMYK")
        expected = np.asarray(inks.convert("RGB"))
        np.testing.assert_array_equal(read_photo(saved(inks, "TIFF")).pixels, expected)
        assert noise_ratio(read_photo(saved(inks, "JPEG", subsampling=0)).pixels, expected) > 28
        white = Image.new("CMYK", (16, 16), (0, 0, 0, 0))
        assert read_photo(saved(white, "JPEG")).pixels.min() >= 250

    def test_cielab_becomes_rgb(self) -> None:
        pixels = scene(64, 48)
        srgb, lab = (ImageCms.createProfile(space) for space in ("sRGB", "LAB"))
        image = ImageCms.profileToProfile(Image.fromarray(pixels), srgb, lab, outputMode="LAB")
        assert image is not None
        assert noise_ratio(read_photo(saved(image, "TIFF")).pixels, pixels) > 35

    @pytest.mark.parametrize("kind", ["PNG", "TIFF", "TIFF LZW", "PPM"])
    def test_sixteen_bits_keep_their_scale(self, kind: str) -> None:
        deep = Image.fromarray(GREY.astype(np.uint16) * 257)
        assert deep.mode == "I;16"
        np.testing.assert_array_equal(read_photo(saved(deep, kind)).pixels, GREY3)

    def test_sixteen_bits_of_colour_keep_their_scale(self) -> None:
        pixels = scene(20, 10)
        deep = (pixels.astype(">u2") * 257).astype(">u2")
        rows = b"".join(b"\0" + row.tobytes() for row in deep)
        np.testing.assert_array_equal(read_photo(png(20, 10, rows, bits=16)).pixels, pixels)

    def test_twelve_bits_keep_their_scale(self) -> None:
        photo = read_photo(tiff(2, 1, bytes([0xFF, 0xF8, 0x00]), t258=12))
        assert photo.pixels[0, :, 0].tolist() == [255, round(0x800 * 255 / 4095)]

    @pytest.mark.parametrize("white", [1, 255, 65535])
    def test_floating_point_runs_to_the_first_white_that_holds_it(self, white: int) -> None:
        values = GREY.astype(np.float32) / 255 * white
        np.testing.assert_array_equal(read_photo(saved(Image.fromarray(values), "TIFF")).pixels, GREY3)

    def test_greys_of_no_known_scale_are_stretched(self) -> None:
        values = (GREY.astype(np.int32) - 100) * 1000
        np.testing.assert_array_equal(read_photo(saved(Image.fromarray(values), "TIFF")).pixels, GREY3)
        whole = GREY.astype(np.int32) * 257
        np.testing.assert_array_equal(read_photo(saved(Image.fromarray(whole), "TIFF")).pixels, GREY3)

    @pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, 3e38, -3e38])
    def test_wild_values_do_not_stop_a_photo(self, odd: float) -> None:
        values = GREY.astype(np.float32) / 255
        values[3, 4] = odd
        assert read_photo(saved(Image.fromarray(values), "TIFF")).pixels.shape == (16, 16, 3)
        values[:] = odd
        assert read_photo(saved(Image.fromarray(values), "TIFF")).pixels.shape == (16, 16, 3)


class TestProfiles:
    @pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
    def test_the_profile_is_applied(self, kind: str) -> None:
        pixels = scene(40, 30)
        photo = read_photo(saved(pixels, kind, icc_profile=swapped_profile()))
        assert difference(photo.pixels, pixels[:, :, ::-1]) <= 2

    @pytest.mark.parametrize("kind", ["JPEG", "AVIF"])
    def test_the_profile_is_applied_where_codecs_lose(self, kind: str) -> None:
        pixels = scene(160, 120)
        photo = read_photo(saved(pixels, kind, icc_profile=swapped_profile()))
        assert noise_ratio(photo.pixels, pixels[:, :, ::-1]) > 28

    def test_srgb_changes_nothing(self) -> None:
        pixels = scene(40, 30)
        profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
        np.testing.assert_array_equal(read_photo(saved(pixels, "PNG", icc_profile=profile)).pixels, pixels)

    @pytest.mark.parametrize("cut", [1, 100, 200, 400])
    def test_a_broken_profile_is_passed_over(self, cut: int) -> None:
        pixels = scene(40, 30)
        broken = swapped_profile()[:cut] + b"\xa5" * 50
        photo = read_photo(saved(pixels, "PNG", icc_profile=broken))
        assert difference(photo.pixels, pixels) == 0

    def test_a_profile_for_other_pixels_is_passed_over(self) -> None:
        grey = Image.fromarray(GREY)
        photo = read_photo(saved(grey, "PNG", icc_profile=swapped_profile()))
        np.testing.assert_array_equal(photo.pixels, GREY3)
