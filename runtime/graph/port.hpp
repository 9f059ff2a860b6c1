// SPDX-License-Identifier: Apache-2.0
// Connection points of a section.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/dtype.hpp"
#include "runtime/graph/layout.hpp"

namespace maestro {

/// Unit that a port's rows count.
enum class Axis : std::uint8_t {
  tokens,        ///< positions of the decoder's sequence, image positions among them
  patches,       ///< rows of the vision encoder: patches, and class rows, of the sample's tiles, tile after tile
  visual,        ///< rows that the decoder receives for the sample's images, in the order of their positions
  answers,       ///< positions that have a target, in order
  other_tokens,  ///< tokens, patches and visual rows as another model counts them (Reading)
  other_patches,
  other_visual,
  frames,  ///< rows of the encoder of sounds, in a model that also reads images: its patches
  heard    ///< rows that the decoder receives for the sample's sounds: that encoder's visual rows
};
inline constexpr std::array<Axis, 9> all_axes{Axis::tokens,       Axis::patches,      Axis::visual,
                                              Axis::answers,      Axis::other_tokens, Axis::other_patches,
                                              Axis::other_visual, Axis::frames,       Axis::heard};
/// The axes that a section's ports may name.
inline constexpr std::array<Axis, 3> section_axes{Axis::tokens, Axis::patches, Axis::visual};
[[nodiscard]] constexpr std::string_view name_of(Axis axis) {
  constexpr std::array<std::string_view, all_axes.size()> names{
      "tokens", "patches", "visual", "answers", "other tokens", "other patches", "other visual", "frames", "heard"};
  return names[static_cast<std::size_t>(axis)];
}
[[nodiscard]] constexpr bool counts_tokens(Axis axis) {
  return axis == Axis::tokens || axis == Axis::other_tokens;
}
[[nodiscard]] constexpr bool counts_patches(Axis axis) {
  return axis == Axis::patches || axis == Axis::other_patches || axis == Axis::frames;
}
[[nodiscard]] constexpr bool counts_visual(Axis axis) {
  return axis == Axis::visual || axis == Axis::other_visual || axis == Axis::heard;
}

/// How a section reads the samples, if another model of the job sees other images than the data were prepared with, or
/// if the section reads sounds next to images.
enum class Reading : std::uint8_t {
  own,     ///< tokens and images as the data were prepared
  images,  ///< tokens as prepared, and images cut by the other model's processor
  tokens,  ///< images cut by the other model's processor, and its tokens for them
  sounds   ///< tokens as prepared, and sounds in place of images
};
/// Returns the axis of the graph for an axis of a section with this reading.
[[nodiscard]] constexpr Axis axis_in(Reading reading, Axis axis) {
  if (reading == Reading::own || axis == Axis::answers) return axis;
  if (reading == Reading::sounds) return counts_patches(axis) ? Axis::frames : counts_visual(axis) ? Axis::heard : axis;
  if (counts_patches(axis)) return Axis::other_patches;
  if (reading == Reading::images) return axis;
  return counts_tokens(axis) ? Axis::other_tokens : Axis::other_visual;
}

/// A named, typed connection point. Each row of a sample carries `columns` elements.
struct Port {
  std::string name;
  DType dtype = DType::f32;
  std::int64_t columns = 1;
  bool differentiable = false;  ///< a gradient of the same shape may travel the other way
  bool optional = false;        ///< an input that may be unconnected, or lack rows for some samples
  Axis axis = Axis::tokens;
  /// Part that each rank of a replica holds. A gradient is sharded like its value and complete on each rank: ranks that
  /// hold the same rows hold the same gradient.
  Sharding sharding = Sharding::context_rows;
  /// Choice of the input by the samples' source: its producer runs, and it has rows, only for the samples of some
  /// sources.
  bool chosen = false;
};

struct Ports {
  std::vector<Port> inputs;
  std::vector<Port> outputs;
};

}  // namespace maestro
