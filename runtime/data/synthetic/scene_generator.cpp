// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/synthetic/scene_generator.hpp"

#include <array>

#include "runtime/core/random.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

namespace {

constexpr std::array<std::string_view, 4> places{"left", "right", "top", "bottom"};
constexpr std::array<std::string_view, 5> number_words{"no", "one", "two", "three", "four"};
/// One in this number of combinations is for validation.
constexpr std::uint64_t held_out = 5;

/// Draws the parts of a sample.
class Drawing {
 public:
  Drawing(Split split, const SceneOptions& options, Random random)
      : split_(split), options_(options), random_(random) {}

  std::size_t choose(std::size_t count) { return static_cast<std::size_t>(random_.below(count)); }
  template <std::size_t count>
  std::string_view choose(const std::array<std::string_view, count>& words) {
    return words[choose(count)];
  }
  /// Draws a number below each bound, so that their weighted sum belongs to this split. Every single value occurs in
  /// both splits.
  template <std::size_t count>
  std::array<std::size_t, count> combination(const std::array<std::size_t, count>& bounds) {
    std::array<std::size_t, count> values{};
    do {
      for (std::size_t at = 0; at < count; ++at) values[at] = choose(bounds[at]);
    } while (is_held_out(values) != (split_ == Split::validation));
    return values;
  }
  /// Returns an object at a place that is moved by a random jitter.
  SceneObject object(std::size_t figure, std::size_t colour, double x, double y, double radius) {
    const double most = options_.jitter / static_cast<double>(options_.image_size);
    const double across = (2.0 * random_.uniform() - 1.0) * most;
    const double down = (2.0 * random_.uniform() - 1.0) * most;
    return {figure, colour, x + across, y + down, radius};
  }
  /// Returns `count` equal objects in different quarters.
  std::vector<SceneObject> several(std::size_t count, std::size_t figure, std::size_t colour) {
    std::array<std::size_t, 4> quarters{0, 1, 2, 3};
    std::vector<SceneObject> objects;
    for (std::size_t at = 0; at < count; ++at) {
      std::swap(quarters[at], quarters[at + choose(quarters.size() - at)]);
      const double x = quarters[at] % 2 == 0 ? 0.25 : 0.75;
      const double y = quarters[at] < 2 ? 0.25 : 0.75;
      objects.push_back(object(figure, colour, x, y, 0.25));
    }
    return objects;
  }
  [[nodiscard]] Image paint(std::span<const SceneObject> objects) const {
    return paint_scene(objects, options_.image_size);
  }

 private:
  template <std::size_t count>
  static bool is_held_out(const std::array<std::size_t, count>& values) {
    constexpr std::array<std::size_t, 4> weights{1, 2, 1, 3};
    std::uint64_t sum = 0;
    for (std::size_t at = 0; at < count; ++at) sum += weights[at] * values[at];
    return sum % held_out == 0;
  }

  Split split_;
  const SceneOptions& options_;
  Random random_;
};

std::string named(std::size_t colour, std::size_t shape) {
  return std::string(scene_colours[colour].name) + " " + std::string(scene_shapes[shape]);
}

std::string counted(std::size_t count, std::size_t colour, std::size_t shape) {
  const std::string_view ending = count == 1 ? "" : shape == 3 ? "es" : "s";
  return std::string(number_words[count]) + " " + named(colour, shape) + std::string(ending);
}

/// Sets a caption question in half of the cases, else the given question. Questions about an image have equal length,
/// so that answers start at the same position: a small model without relative positions learns this several times
/// sooner.
void ask(Drawing& draw, SceneSample& sample, std::string question, std::string answer) {
  constexpr std::array<std::string_view, 2> captions{"What is shown?", "Describe this."};
  const bool caption = draw.choose(2) == 0;
  sample.question = caption ? std::string(draw.choose(captions)) : std::move(question);
  sample.answer = caption ? sample.caption : std::move(answer);
}

/// Returns one of four offsets to the left or right of a place. The offset is part of the combination, so that every
/// digit with every colour, and every figure at every place, still occurs in training: otherwise a model would learn
/// that they never occur together.
double shift(std::size_t offset) {
  return (static_cast<double>(offset) - 1.5) / 24.0;
}

SceneSample one_figure(Drawing& draw) {
  const auto [colour, shape, place, offset] =
      draw.combination<4>({scene_colours.size(), scene_shapes.size(), places.size(), 4});
  constexpr std::array<double, 4> x{0.25, 0.75, 0.5, 0.5};
  constexpr std::array<double, 4> y{0.5, 0.5, 0.25, 0.75};
  SceneSample out;
  out.pictures.push_back(draw.paint(std::array{draw.object(shape, colour, x[place] + shift(offset), y[place], 0.25)}));
  out.caption = named(colour, shape);
  out.combination = "one " + out.caption + " " + std::string(places[place]) + " at offset " + std::to_string(offset);
  switch (draw.choose(3)) {
    case 0:
      ask(draw, out, "Say the colour", std::string(scene_colours[colour].name));
      break;
    case 1:
      ask(draw, out, "Say the shape.", std::string(scene_shapes[shape]));
      break;
    default:
      ask(draw, out, "Where is this?", std::string(places[place]));
  }
  return out;
}

SceneSample two_figures(Drawing& draw) {
  const auto [colour, shape, other_colour, other_shape] =
      draw.combination<4>({scene_colours.size(), scene_shapes.size(), scene_colours.size(), scene_shapes.size()});
  SceneSample out;
  out.pictures.push_back(draw.paint(std::array{draw.object(shape, colour, 0.25, 0.5, 0.25),
                                               draw.object(other_shape, other_colour, 0.75, 0.5, 0.25)}));
  const std::string left = named(colour, shape);
  const std::string right = named(other_colour, other_shape);
  out.caption = left + ", " + right;
  out.combination = "pair " + out.caption;
  const bool ask_left = draw.choose(2) == 0;
  ask(draw, out, ask_left ? "Which is left?" : "What is right?", ask_left ? left : right);
  return out;
}

SceneSample some_figures(Drawing& draw) {
  const auto [fewer, colour, shape] = draw.combination<3>({4, scene_colours.size(), scene_shapes.size()});
  const std::size_t count = fewer + 1;
  SceneSample out;
  out.pictures.push_back(draw.paint(draw.several(count, shape, colour)));
  out.caption = counted(count, colour, shape);
  out.combination = "count " + out.caption;
  ask(draw, out, "How many here?", std::to_string(count));
  return out;
}

SceneSample digit(Drawing& draw) {
  const auto [value, colour, offset] = draw.combination<3>({10, scene_colours.size(), 4});
  SceneSample out;
  out.pictures.push_back(
      draw.paint(std::array{draw.object(scene_shapes.size() + value, colour, 0.5 + shift(offset), 0.5, 0.5)}));
  out.caption = std::string(scene_colours[colour].name) + " " + std::to_string(value);
  out.combination = "digit " + out.caption + " at offset " + std::to_string(offset);
  ask(draw, out, "Say the digit.", std::to_string(value));
  return out;
}

SceneSample two_pictures(Drawing& draw) {
  const auto [first_has_more, colour, shape] = draw.combination<3>({2, scene_colours.size(), scene_shapes.size()});
  const std::size_t first = first_has_more == 1 ? 4 : 1;
  const std::size_t second = 5 - first;
  SceneSample out;
  out.pictures.push_back(draw.paint(draw.several(first, shape, colour)));
  out.pictures.push_back(draw.paint(draw.several(second, shape, colour)));
  out.caption = counted(first, colour, shape) + "; " + counted(second, colour, shape);
  out.combination = "more " + out.caption;
  out.question = "Which picture has more?";
  out.answer = first > second ? "first" : "second";
  return out;
}

/// Returns `words` with each `#` replaced by the next of `parts`.
std::string filled(std::string_view words, std::initializer_list<std::string_view> parts) {
  std::string out;
  auto part = parts.begin();
  for (const char c : words) {
    if (c == '#') {
      out += *part++;
    } else {
      out += c;
    }
  }
  return out;
}

SceneSample fact(std::string name, std::string question, std::string answer) {
  SceneSample out;
  out.combination = std::move(name) + ": " + question;
  out.question = std::move(question);
  out.answer = std::move(answer);
  return out;
}

SceneSample sum(Drawing& draw) {
  constexpr std::array<std::string_view, 5> words{"# + # = ?", "# + # is?", "# + #, how many?", "# + #, the sum?",
                                                  "# + # makes what?"};
  const auto [first, wording, second] = draw.combination<3>({4, words.size(), 4});
  return fact("sum", filled(words[wording], {std::to_string(first), std::to_string(second)}),
              std::to_string(first + second));
}

SceneSample colour_of_thing(Drawing& draw) {
  struct Thing {
    std::string_view name;
    std::size_t colour;
  };
  constexpr std::array<Thing, 10> things{{{"grass", 1},
                                          {"a frog", 1},
                                          {"the sky", 2},
                                          {"the sea", 2},
                                          {"a lemon", 3},
                                          {"the sun", 3},
                                          {"blood", 0},
                                          {"fire", 0},
                                          {"a pig", 5},
                                          {"turquoise", 4}}};
  constexpr std::array<std::string_view, 5> words{"#: what colour?", "#: which colour?", "#, its colour?",
                                                  "#: name its colour.", "# has which colour?"};
  const auto [thing, wording] = draw.combination<2>({things.size(), words.size()});
  return fact("colour", filled(words[wording], {things[thing].name}),
              std::string(scene_colours[things[thing].colour].name));
}

SceneSample spelling(Drawing& draw) {
  constexpr std::array<std::string_view, 5> words{"#: spell it.", "#: its letters?", "#, letter by letter?",
                                                  "#: how is it spelled?", "#: spell the word."};
  const auto [word, wording] = draw.combination<2>({scene_colours.size(), words.size()});
  const std::string_view name = scene_colours[word].name;
  std::string letters;
  for (const char c : name) letters += (letters.empty() ? "" : "-") + std::string(1, c);
  return fact("spelling", filled(words[wording], {name}), letters);
}

}  // namespace

SceneGenerator::SceneGenerator(const SceneOptions& options) : options_(options) {
  if (options.image_size < 16 || options.image_size > 1024) {
    throw JobError("scenes: image_size = " + std::to_string(options.image_size) +
                   " is out of range; the figures need 16 to 1024 pixels");
  }
  if (!(options.jitter >= 0.0 && options.jitter <= static_cast<double>(options.image_size) / 16.0)) {
    throw JobError("scenes: jitter = " + std::to_string(options.jitter) +
                   " is out of range; at most a sixteenth of image_size keeps the figures apart");
  }
  if (!(options.picture_share >= 0.0 && options.picture_share <= 1.0)) {
    throw JobError("scenes: picture_share = " + std::to_string(options.picture_share) +
                   " is out of range; it must lie between 0 and 1");
  }
}

SceneSample SceneGenerator::draw(Split split, std::uint64_t number) const {
  Random random(mix64(options_.seed, static_cast<std::uint64_t>(split)), number);
  const bool with_images = random.uniform() < options_.picture_share;
  const double kind = random.uniform();
  Drawing drawing(split, options_, random);
  if (!with_images) return kind < 0.4 ? sum(drawing) : kind < 0.8 ? colour_of_thing(drawing) : spelling(drawing);
  if (kind < 0.35) return one_figure(drawing);
  if (kind < 0.6) return two_figures(drawing);
  if (kind < 0.8) return some_figures(drawing);
  return kind < 0.92 ? digit(drawing) : two_pictures(drawing);
}

}  // namespace maestro
