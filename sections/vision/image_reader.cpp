// SPDX-License-Identifier: Apache-2.0
#include "sections/vision/image_reader.hpp"

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/result.hpp"
#include "sections/model_folder.hpp"
#include "sections/vision/projector.hpp"
#include "sections/vision/vision_encoder.hpp"

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

/// Returns a section with the values of a folder.
template <class Type>
LoadedSection loaded(const OperatorTable& ops, const char* name, const typename Type::Options& options,
                     const std::filesystem::path& folder, DType precision) {
  SectionContext context;
  context.name = name;
  context.precision = precision;
  context.values = InitialValues::later;
  context.ops = &ops;
  LoadedSection made{std::make_unique<Type>(context, options), precision};
  made.section->freeze();
  load_model(*made.section, {folder, {}, {}}).or_throw();
  return made;
}

}  // namespace

std::unique_ptr<ImageReader> ImageReader::open(const OperatorTable& ops, const std::filesystem::path& folder,
                                               DType precision, Modality modality) {
  const VisionEncoder::Options vision{read_hf_vision_config(folder, modality).value_or_throw(), {}};
  const Projector::Options projector{read_hf_projector_config(folder, modality).value_or_throw(), {}, {}};
  return std::make_unique<ImageReader>(ops, loaded<VisionEncoder>(ops, "vision", vision, folder, precision),
                                       loaded<Projector>(ops, "projector", projector, folder, precision));
}

ImageReader::ImageReader(const OperatorTable& ops, LoadedSection vision, LoadedSection projector)
    : vision_(std::move(vision)),
      projector_(std::move(projector)),
      seeing_(ops, arena_, vision_.precision, false),
      projecting_(ops, arena_, projector_.precision, false) {}

ImageRows ImageReader::read(const SampleImages& images) {
  const Rows none(0), patches(images.pixels.rows()), visual(images.visual);
  const Inputs sample(Pass::evaluate, only_sample, none.layout(), 1.0, patches.layout(), visual.layout());
  Outputs seen, projected;
  Inputs to_vision = sample, to_projector = sample;
  to_vision.set("pixels", seeing_.input(images.pixels));
  to_vision.set("places", seeing_.input(images.places));
  vision_.section->forward(seeing_, to_vision, seen);
  for (const Port& features : vision_.section->ports().outputs) {
    to_projector.set(features.name, projecting_.input(seen.find(features.name)->value()));
  }
  for (const Port& port : projector_.section->ports().inputs) {
    if (port.name == "places") to_projector.set(port.name, projecting_.input(images.places));
  }
  if (images.sources.defined()) {
    to_projector.set("sources", projecting_.input(images.sources));
    to_projector.set("weights", projecting_.input(images.weights));
  }
  projector_.section->forward(projecting_, to_projector, projected);
  ImageRows made;
  for (const Port& rows : projector_.section->ports().outputs) made.rows_.push_back(*projected.find(rows.name));
  if (made.visual().rows() == images.visual) return made;
  throw JobError("the prompt has " + std::to_string(images.visual) + " image tokens, but its images have " +
                 std::to_string(made.visual().rows()) + " rows");
}

std::vector<Tensor> ImageRows::taps() const {
  std::vector<Tensor> taps;
  for (std::size_t tap = 1; tap < rows_.size(); ++tap) taps.push_back(rows_[tap].value());
  return taps;
}

}  // namespace maestro
