// SPDX-License-Identifier: Apache-2.0
// Rotary positions in config.json: rope_theta at the top with a rope_scaling, or both in rope_parameters (transformers
// 5), which has an entry for each kind of layer in Gemma 3. Defaults as in modeling_rope_utils.py of transformers 5.24.
#include <cmath>
#include <optional>
#include <string>

#include "runtime/core/printable.hpp"
#include "runtime/model/hf_families.hpp"

namespace maestro {

namespace {

using Keys = HfKeys;
using Kind = RotaryScaling::Kind;

constexpr const char* global_layers = "full_attention";
constexpr const char* local_layers = "sliding_attention";

bool nothing_is_ignored(std::string_view /*key*/) {
  return false;
}

/// A value that several places may contain, and that must be equal in all.
class OneValue {
 public:
  void take(const JsonValue& place) {
    if (!place) return;
    const double found = place.positive();
    if (taken_ && taken_->positive() != found)
      place.refuse("contradicts " + taken_->path() + " = " + shown(taken_->json()) + "; remove one");
    taken_ = place;
  }
  [[nodiscard]] double value_or(double absent) const { return taken_ ? taken_->positive() : absent; }

 private:
  std::optional<JsonValue> taken_;
};

JsonValue type_of(const Keys& scaling) {
  const JsonValue older = scaling.find("type"), type = scaling.find("rope_type");
  for (const JsonValue& each : {older, type}) (void)each.text("");
  return type ? type : older;
}

std::vector<double> factors_of(const Keys& keys, const char* key, std::int64_t pairs) {
  const JsonValue list = keys.find(key);
  std::vector<double> factors;
  if (list) {
    for (const JsonValue& factor : list.items()) factors.push_back(factor.positive());
  }
  if (factors.size() != static_cast<std::size_t>(pairs))
    list.expected("a list of " + std::to_string(pairs) + " numbers above 0");
  return factors;
}

double yarn_magnitude(const Keys& keys, double factor) {
  const double slope = keys.positive("mscale", 1), whole = keys.positive("mscale_all_dim", 1);
  if (keys.find("attention_factor")) return keys.positive("attention_factor", 1);
  const bool both = keys.find("mscale") && keys.find("mscale_all_dim");
  return both ? yarn_growth(factor, slope) / yarn_growth(factor, whole) : yarn_growth(factor, 1);
}

/// Returns the magnitude for LongRoPE (Ding et al. 2024, section 4).
double longrope_magnitude(const Keys& keys, double factor, double original) {
  const double formula = factor <= 1 ? 1.0 : std::sqrt(1 + std::log(factor) / std::log(original));
  return keys.positive("attention_factor", formula);
}

RotaryScaling longrope(const Keys& keys, RotaryScaling scaling, const DecoderConfig& config) {
  const std::int64_t pairs = config.rotated_columns() / 2;
  scaling.factors = factors_of(keys, "short_factor", pairs);
  (void)factors_of(keys, "long_factor", pairs);  // for samples beyond `original`, which are refused
  scaling.factor = keys.positive("factor", static_cast<double>(config.positions) / scaling.original);
  scaling.magnitude = longrope_magnitude(keys, scaling.factor, scaling.original);
  return scaling;
}

/// Returns the pre-training positions: the value at the top takes precedence over the value among the scaling's keys.
/// If the class has a default at the top, it takes precedence, too, and a different value inside is refused.
double original_of(const Keys& keys, const Keys& top, const DecoderConfig& config, const RotaryForm& form) {
  constexpr const char* key = "original_max_position_embeddings";
  const double inside = keys.positive(key, static_cast<double>(config.positions));
  if (form.original == 0) return top.positive(key, inside);
  const double original = top.positive(key, static_cast<double>(form.original));
  if (keys.find(key) && inside != original) {
    keys.find(key).refuse(not_applied_by(form.architecture) + ", which takes the value outside, " +
                          std::to_string(std::llround(original)) + " if it is absent; make them equal");
  }
  return original;
}

/// Reads the scaling from rope_scaling, rope_parameters, or an entry of the latter.
RotaryScaling scaling_of(const Keys& keys, const Keys& top, const DecoderConfig& config, const RotaryForm& form) {
  const JsonValue named = type_of(keys);
  const std::string type = named.text("default");
  RotaryScaling scaling;
  if (type == "default") return scaling;
  const bool longrope_named = form.longrope_alone && (type == "su" || type == "yarn");
  if (form.longrope_alone && type != "longrope" && !longrope_named) {
    named.refuse(not_applied_by(form.architecture) + "; these are: default, longrope");
  }
  const auto positions = static_cast<double>(config.positions);
  const double original = original_of(keys, top, config, form);
  if (type == "linear") {
    scaling.kind = Kind::linear;
    scaling.factor = keys.positive("factor", 1);
    return scaling;
  }
  scaling.original = original;
  if (type == "longrope" || longrope_named) {
    scaling.kind = Kind::longrope;
    return longrope(keys, scaling, config);
  }
  scaling.factor = keys.positive("factor", positions / scaling.original);
  if (type == "llama3") {
    scaling.kind = Kind::llama3;
    scaling.low = keys.positive("low_freq_factor", 1);
    scaling.high = keys.positive("high_freq_factor", 4);
    if (scaling.high <= scaling.low) keys.fail("high_freq_factor", "it must be above low_freq_factor");
    return scaling;
  }
  if (type != "yarn") {
    named.refuse("is not supported; these are: default, linear, llama3, yarn, longrope");
  }
  scaling.kind = Kind::yarn;
  scaling.beta_fast = keys.positive("beta_fast", 32);
  scaling.beta_slow = keys.positive("beta_slow", 1);
  scaling.truncate = keys.flag("truncate", true);
  scaling.magnitude = yarn_magnitude(keys, scaling.factor);
  if (form.scores && keys.find("mscale_all_dim")) scaling.score_slope = keys.positive("mscale_all_dim", 0);
  return scaling;
}

/// The objects with rotary settings in a file: rope_scaling, which is flat, and rope_parameters, which is flat or, for
/// some classes, has an entry for each kind of layer.
class RotaryObjects {
 public:
  RotaryObjects(const Keys& keys, const RotaryForm& form) : keys_(keys) {
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      const JsonValue object = keys.find(key);
      if (object && !object.json().is_object()) object.expected("an object or null");
      if (object.json().empty()) continue;
      const bool layered = form.by_layer && std::string_view(key) == "rope_parameters";
      if (layered) {
        add_layers(object, form);
      } else {
        refuse_layers(object, form);
        objects_.push_back(object);
      }
    }
    both_differ_ = !form.by_layer && objects_.size() == 2 && objects_[0].json() != objects_[1].json();
  }
  /// Returns the objects for all layers, or for layers without windows.
  [[nodiscard]] const std::vector<JsonValue>& all() const { return objects_; }
  /// Returns the object for windowed layers.
  [[nodiscard]] const std::optional<JsonValue>& local() const { return local_; }
  /// Refuses a rope_parameters that differs from a rope_scaling next to it.
  void require_agreement() const {
    if (both_differ_) {
      keys_.fail("rope_parameters",
                 "it differs from rope_scaling, and transformers reads only rope_scaling; remove one");
    }
  }

 private:
  void add_layers(const JsonValue& object, const RotaryForm& form) {
    for (const auto& [layers, entry] : object.members()) {
      if (layers != global_layers && layers != local_layers) {
        entry.refuse(not_applied_by(form.architecture) + ", which takes " + global_layers + " and " + local_layers);
      }
      if (entry.null()) continue;
      if (!entry.json().is_object()) entry.expected("an object or null");
      if (layers == local_layers) local_ = entry;
      if (layers == global_layers) objects_.push_back(entry);
    }
  }
  static void refuse_layers(const JsonValue& object, const RotaryForm& form) {
    for (const char* layers : {global_layers, local_layers}) {
      if (const JsonValue entry = object.at(layers)) {
        entry.refuse(not_applied_by(form.architecture) + "; it does not read rotary settings by layer");
      }
    }
  }

  const Keys& keys_;
  std::vector<JsonValue> objects_;
  std::optional<JsonValue> local_;
  bool both_differ_ = false;
};

void read_local(const Keys& keys, const RotaryObjects& objects, DecoderConfig& config) {
  OneValue theta;
  theta.take(keys.find("rope_local_base_freq"));
  if (objects.local()) {
    const Keys inside(*objects.local());
    theta.take(inside.find("rope_theta"));
    if (const JsonValue type = type_of(inside); type.text("default") != "default") {
      type.refuse("is not supported; windowed layers have the default");
    }
    inside.refuse_unknown(nothing_is_ignored);
  }
  config.local_rope_theta = theta.value_or(10000.0);
}

}  // namespace

void read_rotary(const Keys& keys, DecoderConfig& config, const RotaryForm& form) {
  const RotaryObjects objects(keys, form);
  OneValue theta, share;
  theta.take(keys.find("rope_theta"));
  share.take(keys.find("partial_rotary_factor"));
  for (const JsonValue& object : objects.all()) {
    theta.take(object.find("rope_theta"));
    share.take(object.find("partial_rotary_factor"));
  }
  objects.require_agreement();
  config.rope_theta = theta.value_or(form.theta);
  config.rope_share = share.value_or(form.share);
  if (!form.partial && config.rope_share != 1) {
    keys.fail("partial_rotary_factor", number_text(config.rope_share) + " " + not_applied_by(form.architecture) +
                                           ", which rotates complete heads; remove it");
  }
  const std::int64_t rotated = config.rotated_columns();
  if (config.rope_share > 1 || rotated % 2 != 0 || rotated == 0) {
    keys.fail("partial_rotary_factor", "it makes " + std::to_string(rotated) + " of " +
                                           std::to_string(config.head_size) +
                                           " columns rotate; their number must be even");
  }
  for (const JsonValue& object : objects.all()) {
    const Keys inside(object);
    for (const char* known : {"rope_theta", "partial_rotary_factor"}) (void)inside.find(known);
    for (const char* axis : {"mrope_section", "mrope_interleaved"}) {
      if (form.axes) (void)inside.find(axis);
    }
    const RotaryScaling found = scaling_of(inside, keys, config, form);
    inside.refuse_unknown(nothing_is_ignored);
    if (found.kind == Kind::none) continue;
    if (config.rope_scaling.kind != Kind::none && config.rope_scaling != found) {
      object.fail("it contradicts rope_scaling; remove one");
    }
    config.rope_scaling = found;
  }
  if (objects.all().empty() && form.yarn > 0) {
    RotaryScaling& scaling = config.rope_scaling;
    scaling.kind = Kind::yarn;
    scaling.factor = form.yarn;
    scaling.original = 4096;
    scaling.truncate = false;
    scaling.magnitude = yarn_growth(form.yarn, 1);
  }
  (void)keys.find("original_max_position_embeddings");
  if (form.by_layer) read_local(keys, objects, config);
  if (config.rope_scaling.kind == Kind::longrope) {
    config.positions = std::min(config.positions, static_cast<std::int64_t>(config.rope_scaling.original));
  }
}

void write_rotary(const DecoderConfig& config, const RotaryForm& form, nlohmann::ordered_json& out) {
  out["rope_theta"] = config.rope_theta;
  if (form.by_layer) out["rope_local_base_freq"] = config.local_rope_theta;
  if (config.rope_share != form.share) out["partial_rotary_factor"] = config.rope_share;
  const RotaryScaling& scaling = config.rope_scaling;
  if (scaling.kind == Kind::none && form.yarn == 0) return;
  nlohmann::ordered_json& object = out["rope_scaling"];
  constexpr const char* names[] = {"default", "linear", "llama3", "yarn", "longrope"};
  object["rope_type"] = names[static_cast<std::size_t>(scaling.kind)];
  if (scaling.kind == Kind::none) return;
  object["factor"] = scaling.factor;
  if (scaling.kind == Kind::linear) return;
  object["original_max_position_embeddings"] = static_cast<std::int64_t>(scaling.original);
  if (form.original != 0) out["original_max_position_embeddings"] = static_cast<std::int64_t>(scaling.original);
  if (scaling.kind == Kind::llama3) {
    object["low_freq_factor"] = scaling.low;
    object["high_freq_factor"] = scaling.high;
    return;
  }
  object["attention_factor"] = scaling.magnitude;
  if (scaling.kind == Kind::longrope) {
    object["short_factor"] = object["long_factor"] = scaling.factors;
    return;
  }
  object["beta_fast"] = scaling.beta_fast;
  object["beta_slow"] = scaling.beta_slow;
  object["truncate"] = scaling.truncate;
  if (scaling.score_slope > 0) object["mscale_all_dim"] = scaling.score_slope;
}

}  // namespace maestro
