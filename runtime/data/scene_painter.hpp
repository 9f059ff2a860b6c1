// Small pictures of coloured figures on a dark ground.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/data/image.hpp"

namespace maestro {

struct SceneColour {
  std::string_view name;
  std::array<std::uint8_t, 3> rgb;
};

inline constexpr std::array<SceneColour, 6> scene_colours{{{"red", {230, 40, 40}},
                                                           {"green", {40, 190, 70}},
                                                           {"blue", {60, 90, 250}},
                                                           {"yellow", {250, 220, 40}},
                                                           {"white", {245, 245, 245}},
                                                           {"pink", {250, 110, 210}}}};

/// Figures 0 to 3 are shapes, the ten behind them the digits 0 to 9.
inline constexpr std::array<std::string_view, 4> scene_shapes{"circle", "square", "triangle", "cross"};
inline constexpr std::size_t scene_figures = scene_shapes.size() + 10;

/// A figure in units of the picture's side, the origin at the left top.
struct SceneObject {
  std::size_t figure = 0;
  std::size_t colour = 0;
  double x = 0.5;  ///< centre
  double y = 0.5;
  double radius = 0.2;  ///< half the side of the square around it
};

/// A square picture of `side` pixels, later objects above earlier ones, with smooth edges. Pure; any thread.
[[nodiscard]] Image paint_scene(std::span<const SceneObject> objects, std::int64_t side);

}  // namespace maestro
