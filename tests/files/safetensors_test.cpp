// SPDX-License-Identifier: Apache-2.0
#include "runtime/files/safetensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/data/temp_folder.hpp"
#include "tests/support/one_line.hpp"

namespace maestro {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// A tensor of every dtype, a scalar and an empty tensor.
struct Tensors {
  std::vector<float> weight{-2.5f, -1.5f, -0.5f, 0.5f, 1.5f, 2.5f};
  std::vector<bfloat16> a{bfloat16(1.5f), bfloat16(-2.0f), bfloat16(3.0f)};
  std::vector<std::int64_t> ids{-1, std::int64_t{1} << 40};
  std::vector<std::int32_t> small{7, -8};
  std::vector<std::uint8_t> flags{1, 0, 255};
  float scalar = 4.0f;

  std::vector<NamedTensor> list() {
    return {{"h.weight", Tensor(weight.data(), DType::f32, {2, 3})},
            {"a", Tensor(a.data(), DType::bf16, {3})},
            {"ids", Tensor(ids.data(), DType::i64, {2})},
            {"small", Tensor(small.data(), DType::i32, {2})},
            {"flags", Tensor(flags.data(), DType::u8, {3})},
            {"scalar", Tensor(&scalar, DType::f32, {})},
            {"none", Tensor(nullptr, DType::f32, {0, 4})}};
  }
};

/// Returns the same tensors as written by safetensors.torch.save of the Python package safetensors 0.8.0, metadata
/// {"format": "pt"}.
std::string file_of_the_python_package() {
  constexpr std::string_view header =
      R"({"__metadata__":{"format":"pt"},"ids":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},)"
      R"("h.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[16,40]},)"
      R"("none":{"dtype":"F32","shape":[0,4],"data_offsets":[40,40]},)"
      R"("scalar":{"dtype":"F32","shape":[],"data_offsets":[40,44]},)"
      R"("small":{"dtype":"I32","shape":[2],"data_offsets":[44,52]},)"
      R"("a":{"dtype":"BF16","shape":[3],"data_offsets":[52,58]},)"
      R"("flags":{"dtype":"U8","shape":[3],"data_offsets":[58,61]}}    )";
  constexpr std::string_view data =
      "ffffffffffffffff0000000000010000000020c00000c0bf000000bf0000003f0000c03f000020400000804007000000f8ffffffc03f00c0"
      "40400100ff";
  std::string file("\xc0\x01\0\0\0\0\0\0", 8);
  file += header;
  for (std::size_t at = 0; at < data.size(); at += 2) {
    file += static_cast<char>(std::stoi(std::string(data.substr(at, 2)), nullptr, 16));
  }
  return file;
}

std::string safetensors_file(std::string_view header, std::string_view data) {
  std::string file;
  for (std::size_t at = 0; at < 8; ++at) file += static_cast<char>(header.size() >> (8 * at));
  return file.append(header).append(data);
}

void expect_tensors(const SafetensorsFile& file) {
  Tensors expected;
  for (const auto& [name, tensor] : expected.list()) {
    SCOPED_TRACE(name);
    const Result<ConstTensor> read = file.tensor(name);
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read->dtype(), tensor.dtype());
    EXPECT_EQ(read->shape(), tensor.shape());
    if (tensor.bytes() > 0) {
      EXPECT_EQ(std::memcmp(read->raw(), tensor.raw(), tensor.bytes()), 0);
    }
  }
}

TEST(Safetensors, a_written_file_is_byte_for_byte_that_of_the_python_package) {
  const TempFolder folder;
  const auto path = folder.path() / "model.safetensors";
  Tensors tensors;
  const Result<WrittenFile> written = write_safetensors(path, tensors.list(), {{"format", "pt"}});
  ASSERT_TRUE(written.ok()) << written.error().message;
  EXPECT_EQ(contents_of(path), file_of_the_python_package());
  EXPECT_EQ(written->bytes, file_of_the_python_package().size());
}

TEST(Safetensors, reads_a_file_of_the_python_package) {
  const TempFolder folder;
  const auto file = SafetensorsFile::open(folder.write("m.safetensors", file_of_the_python_package()));
  ASSERT_TRUE(file.ok()) << file.error().message;
  expect_tensors(*file);
  EXPECT_EQ(file->metadata(), (Metadata{{"format", "pt"}}));
  EXPECT_THAT(file->names(), testing::ElementsAre("ids", "h.weight", "none", "scalar", "small", "a", "flags"));
}

TEST(Safetensors, tensors_stay_valid_when_the_file_object_is_moved) {
  const TempFolder folder;
  auto file = SafetensorsFile::open(folder.write("m.safetensors", file_of_the_python_package()));
  ASSERT_TRUE(file.ok());
  const ConstTensor before = *file->tensor("h.weight");
  const SafetensorsFile moved = *std::move(file);
  EXPECT_EQ(moved.tensor("h.weight")->raw(), before.raw());
  expect_tensors(moved);
}

TEST(Safetensors, data_at_an_odd_address_is_copied_to_an_even_one) {
  const TempFolder folder;
  const float value = 1.25f;
  std::string data("!", 1);
  data.append(reinterpret_cast<const char*>(&value), 4);
  const auto path = folder.write("m", safetensors_file(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                                       R"("f":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})",
                                                       data));
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const ConstTensor tensor = *file->tensor("f");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.raw()) % 4, 0u);
  EXPECT_EQ(tensor.data<float>()[0], 1.25f);
}

TEST(Safetensors, a_file_without_tensors_is_a_file) {
  const TempFolder folder;
  ASSERT_TRUE(write_safetensors(folder.path() / "m", {}, {{"optimizer_step", "3"}}).ok());
  const auto file = SafetensorsFile::open(folder.path() / "m");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_THAT(file->names(), testing::IsEmpty());
  EXPECT_THAT(file->tensor("w").error().message, HasSubstr("none at all"));
}

TEST(Safetensors, an_unknown_tensor_is_answered_with_the_nearest_one) {
  const TempFolder folder;
  const auto file = SafetensorsFile::open(folder.write("m.safetensors", file_of_the_python_package()));
  const Result<ConstTensor> tensor = file->tensor("h.wieght");
  ASSERT_FALSE(tensor.ok());
  EXPECT_EQ(tensor.error().code, ErrorCode::not_found);
  EXPECT_THAT(tensor.error().message,
              AllOf(HasSubstr("m.safetensors"), HasSubstr("h.wieght"), HasSubstr("nearest is h.weight")));
}

TEST(Safetensors, elements_of_an_f16_tensor_are_widened_without_the_others) {
  const TempFolder folder;
  std::vector<float> values{0.5F, -1.25F, 3, 1.0F / 3, -7};
  std::vector<std::int32_t> ids{1, -2, 3};
  const auto path = folder.path() / "halves.safetensors";
  const std::vector<NamedTensor> tensors{{"ids", Tensor(ids.data(), DType::i32, {3})},
                                         {"values", Tensor(values.data(), DType::f32, {5})}};
  ASSERT_TRUE(write_weights(path, tensors, WeightDtype::f16).ok());
  const SafetensorsFile file = SafetensorsFile::open(path).value_or_throw();
  // The halves have an odd number and follow the wider integers, so that both are aligned in the file.
  EXPECT_EQ(file.names(), (std::vector<std::string>{"ids", "values"}));
  std::vector<float> found(3);
  ASSERT_TRUE(file.widen("values", 1, found).ok());
  EXPECT_EQ(found[0], -1.25F);
  EXPECT_EQ(found[1], 3);
  EXPECT_EQ(found[2], 0.333251953125F);
  EXPECT_TRUE(file.widen("values", 5, std::span(found).first(0)).ok());
  for (const std::int64_t first : {std::int64_t{-1}, std::int64_t{3}, INT64_MAX}) {
    EXPECT_THAT(file.widen("values", first, found).error().message, HasSubstr("has 5 elements, not 3 from"));
  }
  EXPECT_THAT(file.widen("ids", 0, found).error().message, HasSubstr("is I32, expected F16"));
  EXPECT_EQ(file.widen("value", 0, found).error().code, ErrorCode::not_found);
}

TEST(Safetensors, rows_are_read_without_the_others) {
  const TempFolder folder;
  std::vector<float> values{1, 2, 3, 4, 5, 6, 7, 8};
  const Tensor tensor(values.data(), DType::f32, {2, 2, 2});
  for (const WeightDtype dtype : {WeightDtype::f32, WeightDtype::f16}) {
    const auto path = folder.path() / std::string(name_of(dtype));
    ASSERT_TRUE(write_weights(path, {{"experts", tensor}}, dtype).ok());
    const SafetensorsFile file = SafetensorsFile::open(path).value_or_throw();
    const ConstTensor rows = file.rows("experts", 1, 2).value_or_throw(),
                      last = file.rows("experts", 3, 1).value_or_throw();
    EXPECT_EQ(rows.shape(), (Shape{2, 2}));
    EXPECT_THAT(rows.span<float>(), testing::ElementsAre(3, 4, 5, 6));
    EXPECT_THAT(last.span<float>(), testing::ElementsAre(7, 8));
    file.release("experts");
    EXPECT_THAT(file.rows("experts", 0, 4).value_or_throw().span<float>(), testing::ElementsAreArray(values));
    EXPECT_THAT(file.rows("experts", 3, 2).error().message, HasSubstr("has 4 rows, not 2 from 3"));
  }
}

TEST(Safetensors, every_f16_value_is_read_as_the_f32_of_the_same_value) {
  const TempFolder folder;
  std::string bytes;
  for (unsigned half = 0; half < 0x10000; ++half) {
    bytes.append({static_cast<char>(half & 0xff), static_cast<char>(half >> 8)});
  }
  const auto path = folder.write(
      "m", safetensors_file(R"({"half":{"dtype":"F16","shape":[65536],"data_offsets":[0,131072]}})", bytes));
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const ConstTensor wide = file->tensor("half").value_or_throw();
  ASSERT_EQ(wide.dtype(), DType::f32);
  for (unsigned half = 0; half < 0x10000; ++half) {
    const float found = wide.data<float>()[half];
    const unsigned exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;
    EXPECT_EQ(std::signbit(found), half >= 0x8000) << half;
    if (exponent == 0x1f) {
      ASSERT_TRUE(fraction == 0 ? std::isinf(found) : std::isnan(found)) << half;
      continue;
    }
    const double magnitude = exponent == 0 ? std::ldexp(fraction, -24)  // IEEE 754-2008, section 3.4
                                           : std::ldexp(1024 + fraction, static_cast<int>(exponent) - 25);
    ASSERT_EQ(std::abs(found), magnitude) << half;
  }
  EXPECT_EQ(file->tensor("half").value_or_throw().raw(), wide.raw());
}

TEST(Safetensors, a_dtype_we_do_not_compute_with_is_refused_only_when_asked_for_and_inner_dimensions_are_folded) {
  const TempFolder folder;
  const auto path =
      folder.write("m", safetensors_file(R"({"half":{"dtype":"I16","shape":[1],"data_offsets":[0,2]},)"
                                         R"("deep":{"dtype":"U8","shape":[1,1,2,1,3],"data_offsets":[2,8]},)"
                                         R"("fine":{"dtype":"U8","shape":[1],"data_offsets":[8,9]}})",
                                         "abcdefghi"));
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_TRUE(file->tensor("fine").ok());
  EXPECT_THAT(file->tensor("half").error().message,
              AllOf(HasSubstr("half is I16"), HasSubstr("F32, BF16 or F16"), IsOneLine()));
  EXPECT_EQ(file->tensor("deep").value_or_throw().shape(), (Shape{1, 1, 2, 3}));
  EXPECT_FALSE(file->tensors().ok());
}

TEST(Safetensors, a_released_tensor_reads_the_same_again) {
  const TempFolder folder;
  std::vector<float> values(5000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const Tensor tensor(values.data(), DType::f32, {5000});
  ASSERT_TRUE(write_safetensors(folder.path() / "m", {{"a", tensor}, {"b", tensor}}).ok());
  const auto file = SafetensorsFile::open(folder.path() / "m");
  ASSERT_TRUE(file.ok()) << file.error().message;
  const ConstTensor described = file->described("b").value_or_throw();
  EXPECT_FALSE(described.defined());
  EXPECT_EQ(described.shape(), tensor.shape());
  EXPECT_EQ(described.dtype(), DType::f32);
  const ConstTensor first = file->tensor("b").value_or_throw();
  EXPECT_EQ(first.data<float>()[4999], 4999);
  file->release("b");
  file->release("c");
  EXPECT_TRUE(std::ranges::equal(first.span<float>(), values));
  EXPECT_FALSE(file->described("c").ok());
}

TEST(Safetensors, what_cannot_be_written_is_refused_by_name) {
  const TempFolder folder;
  const auto path = folder.path() / "m";
  float value = 0;
  const Tensor tensor(&value, DType::f32, {1});
  EXPECT_THAT(write_safetensors(path, {{"w", tensor}, {"v", tensor}, {"w", tensor}}).error().message,
              HasSubstr("two tensors are called w"));
  EXPECT_THAT(write_safetensors(path, {{"__metadata__", tensor}}).error().message, HasSubstr("__metadata__"));
  EXPECT_THAT(write_safetensors(path, {{"w", Tensor(nullptr, DType::f32, {1})}}).error().message,
              HasSubstr("w has no memory"));
  EXPECT_THAT(write_safetensors(path, {{"\xff", tensor}}).error().message, HasSubstr("not UTF-8"));
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace maestro
