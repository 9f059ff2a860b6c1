// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/image_table.hpp"

#include <algorithm>

namespace maestro {

namespace {

constexpr std::size_t image_columns = 7;
constexpr std::size_t place_columns = 2;

template <class T>
NamedTensor named(const char* name, const std::vector<T>& values, std::int64_t columns) {
  static const T nothing{};  // an empty tensor needs an address, too
  const T* data = values.empty() ? &nothing : values.data();
  const std::int64_t rows = std::ssize(values) / columns;
  return {name, ConstTensor(data, dtype_of<T>, columns == 1 ? Shape{rows} : Shape{rows, columns})};
}

bool rises(std::span<const std::int64_t> values, std::int64_t last) {
  return std::ranges::is_sorted(values) && (values.empty() || (values.front() >= 0 && values.back() == last));
}

}  // namespace

Result<ImageTable> ImageTable::read(const SafetensorsFile& file, std::uint64_t documents) {
  ImageTable made;
  if (!file.contains("image_offsets")) return made;
  Status found;
  const auto find = [&](const char* name, auto& span) {
    using Element = typename std::remove_reference_t<decltype(span)>::value_type;
    if (!found) return;
    const Result<ConstTensor> tensor = file.tensor(name);
    if (!tensor) {
      found = tensor.error();
    } else if (tensor->dtype() != dtype_of<Element>) {
      found = Error{ErrorCode::corrupt, std::string(name) + " has another dtype"};
    } else {
      span = tensor->template span<Element>();
    }
  };
  find("image_offsets", made.offsets_);
  find("images", made.images_);
  find("image_places", made.places_);
  find("image_names", made.names_);
  find("image_name_ends", made.name_ends_);
  if (!found) return found.error();
  if (!made.is_whole(documents)) return Error{ErrorCode::corrupt, "the tensors of images do not fit each other"};
  return made;
}

bool ImageTable::is_whole(std::uint64_t documents) const {
  const std::size_t count = name_ends_.size();
  const bool sizes = offsets_.size() == documents + 1 && images_.size() == count * image_columns &&
                     places_.size() == count * place_columns;
  const bool positive = std::ranges::all_of(images_, [](std::int64_t value) { return value > 0; }) &&
                        std::ranges::all_of(places_, [](std::int64_t value) { return value >= 0; });
  return sizes && positive && rises(offsets_, static_cast<std::int64_t>(count)) && offsets_.front() == 0 &&
         rises(name_ends_, static_cast<std::int64_t>(names_.size()));
}

PreparedImage ImageTable::image(std::uint64_t number) const {
  const auto row = images_.subspan(number * image_columns, image_columns);
  return {row[0], {row[1], row[2]}, row[3], row[4], row[5], row[6]};
}

ImagePlace ImageTable::place(std::uint64_t number) const {
  const auto row = places_.subspan(number * place_columns, place_columns);
  const auto begin = static_cast<std::size_t>(number == 0 ? 0 : name_ends_[number - 1]);
  const auto name = names_.subspan(begin, static_cast<std::size_t>(name_ends_[number]) - begin);
  return {row[0], row[1], std::string(name.begin(), name.end())};
}

void ImageTableWriter::begin() {
  offsets_.assign(1, 0);
  images_.clear();
  places_.clear();
  names_.clear();
  name_ends_.clear();
}

void ImageTableWriter::add(const PreparedImage& image, const ImagePlace& place) {
  images_.insert(images_.end(), {image.bytes, image.size.width, image.size.height, image.in_sample, image.tiles,
                                 image.encoder_rows, image.visual_rows});
  places_.insert(places_.end(), {place.container, place.position});
  names_.insert(names_.end(), place.name.begin(), place.name.end());
  name_ends_.push_back(std::ssize(names_));
}

std::vector<NamedTensor> ImageTableWriter::tensors() const {
  return {named("image_offsets", offsets_, 1), named("images", images_, image_columns),
          named("image_places", places_, place_columns), named("image_names", names_, 1),
          named("image_name_ends", name_ends_, 1)};
}

}  // namespace maestro
