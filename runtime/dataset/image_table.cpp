// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/image_table.hpp"

#include <algorithm>

namespace maestro {

namespace {

constexpr std::size_t image_columns = 7;
constexpr std::size_t place_columns = 2;

/// Returns the name of a tensor, which `rest` ends.
std::string name_in(Modality modality, const char* rest) {
  return (modality == Modality::image ? "image" : "sound") + std::string(rest);
}

template <class T>
NamedTensor named(const std::string& name, const std::vector<T>& values, std::int64_t columns) {
  static const T nothing{};  // an empty tensor needs an address, too
  const T* data = values.empty() ? &nothing : values.data();
  const std::int64_t rows = std::ssize(values) / columns;
  return {name, ConstTensor(data, dtype_of<T>, columns == 1 ? Shape{rows} : Shape{rows, columns})};
}

bool rises(std::span<const std::int64_t> values, std::int64_t last) {
  return std::ranges::is_sorted(values) && (values.empty() || (values.front() >= 0 && values.back() == last));
}

}  // namespace

Result<ImageTable> ImageTable::read(const SafetensorsFile& file, std::uint64_t documents, Modality modality) {
  ImageTable made;
  if (!file.contains(name_in(modality, "_offsets"))) return made;
  Status found;
  const auto find = [&](const char* rest, auto& span) {
    const std::string name = name_in(modality, rest);
    using Element = typename std::remove_reference_t<decltype(span)>::value_type;
    if (!found) return;
    const Result<ConstTensor> tensor = file.tensor(name);
    if (!tensor) {
      found = tensor.error();
    } else if (tensor->dtype() != dtype_of<Element>) {
      found = Error{ErrorCode::corrupt, name + " has another dtype"};
    } else {
      span = tensor->template span<Element>();
    }
  };
  find("_offsets", made.offsets_);
  find("s", made.images_);
  find("_places", made.places_);
  find("_names", made.names_);
  find("_name_ends", made.name_ends_);
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
  const auto name = [this](const char* rest) { return name_in(modality_, rest); };
  return {named(name("_offsets"), offsets_, 1), named(name("s"), images_, image_columns),
          named(name("_places"), places_, place_columns), named(name("_names"), names_, 1),
          named(name("_name_ends"), name_ends_, 1)};
}

}  // namespace maestro
