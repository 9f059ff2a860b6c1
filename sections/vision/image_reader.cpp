// SPDX-License-Identifier: Apache-2.0
#include "sections/vision/image_reader.hpp"

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/result.hpp"

namespace maestro {

namespace {

constexpr SampleId only_sample[] = {SampleId(0)};

/// The layout of a single sample with `rows` rows.
class Rows {
 public:
  explicit Rows(std::int64_t rows)
      : offsets_{0, static_cast<std::int32_t>(rows)}, positions_(static_cast<std::size_t>(rows)) {
    std::iota(positions_.begin(), positions_.end(), 0);
  }
  [[nodiscard]] SequenceLayout layout() const { return {offsets_, positions_}; }

 private:
  std::vector<std::int32_t> offsets_, positions_;
};

}  // namespace

ImageReader::ImageReader(const OperatorTable& ops, LoadedSection vision, LoadedSection projector)
    : vision_(std::move(vision)),
      projector_(std::move(projector)),
      seeing_(ops, arena_, vision_.precision, false),
      projecting_(ops, arena_, projector_.precision, false) {}

Tensor ImageReader::read(const Tensor& pixels, const Tensor& places, std::int64_t rows) {
  visual_ = Var();
  const Rows none(0), patches(pixels.rows()), wanted(rows);
  const Inputs sample(Pass::evaluate, only_sample, none.layout(), 1.0, patches.layout(), wanted.layout());
  Outputs seen, projected;
  Inputs images = sample, features = sample;
  images.set("pixels", seeing_.input(pixels));
  images.set("places", seeing_.input(places));
  vision_.section->forward(seeing_, images, seen);
  features.set("features", projecting_.input(seen.find("features")->value()));
  projector_.section->forward(projecting_, features, projected);
  visual_ = *projected.find("visual");
  if (visual_.value().rows() == rows) return visual_.value();
  throw JobError("the prompt has " + std::to_string(rows) + " image tokens, but its images have " +
                 std::to_string(visual_.value().rows()) + " rows");
}

}  // namespace maestro
