// SPDX-License-Identifier: Apache-2.0
// Rotary positions in config.json: rope_theta at the top with a rope_scaling, and since transformers 5 both in
// rope_parameters, where Gemma 3 has an entry for each kind of layer. Defaults as modeling_rope_utils.py of
// transformers 5.24.
#include <cmath>
#include <optional>
#include <string>

#include "runtime/state/hf_families.hpp"

namespace maestro {

namespace {

using Keys = HfKeys;
using Kind = RotaryScaling::Kind;

constexpr const char* global_layers = "full_attention";
constexpr const char* local_layers = "sliding_attention";

bool nothing_is_ignored(std::string_view /*key*/) {
  return false;
}

/// A value that may stand in several places, where it must be the same.
class OneValue {
 public:
  explicit OneValue(const Keys& keys) : keys_(keys) {}
  void take(const std::string& where, const Keys& at, std::string_view key) {
    if (at.find(key) == nullptr) return;
    const double found = at.positive(key, 0);
    const std::string shown = where + " = " + at.find(key)->dump();
    if (value_ && *value_ != found) {
      keys_.fail(where, "= " + at.find(key)->dump() + " contradicts " + place_ + "; remove one");
    }
    value_ = found;
    place_ = shown;
  }
  [[nodiscard]] double value_or(double absent) const { return value_.value_or(absent); }

 private:
  const Keys& keys_;
  std::optional<double> value_;
  std::string place_;
};

std::string type_of(const Keys& scaling) {
  for (const char* key : {"type", "rope_type"}) {
    const nlohmann::json* type = scaling.find(key);
    if (type != nullptr && !type->is_string()) scaling.fail(key, "is " + shown(*type) + "; it must be a string");
  }
  const nlohmann::json* type = scaling.find("rope_type");
  if (type == nullptr) type = scaling.find("type");
  return type == nullptr ? "default" : type->get<std::string>();
}

std::vector<double> factors_of(const Keys& keys, const char* key, std::int64_t pairs) {
  const nlohmann::json* list = keys.find(key);
  const bool good = list != nullptr && list->is_array() && list->size() == static_cast<std::size_t>(pairs) &&
                    std::ranges::all_of(*list, [](const nlohmann::json& each) { return each.is_number() && each > 0; });
  if (!good) keys.fail(key, "must be a list of " + std::to_string(pairs) + " numbers above 0");
  return list->get<std::vector<double>>();
}

/// Growth of the attention's temperature with the length (YaRN, Peng et al. 2023, eq. 22).
double yarn_growth(double factor, double slope) {
  return factor <= 1 ? 1.0 : 0.1 * slope * std::log(factor) + 1.0;
}

double yarn_magnitude(const Keys& keys, double factor) {
  const double slope = keys.positive("mscale", 1), whole = keys.positive("mscale_all_dim", 1);
  if (keys.find("attention_factor") != nullptr) return keys.positive("attention_factor", 1);
  const bool both = keys.find("mscale") != nullptr && keys.find("mscale_all_dim") != nullptr;
  return both ? yarn_growth(factor, slope) / yarn_growth(factor, whole) : yarn_growth(factor, 1);
}

/// LongRoPE (Ding et al. 2024, section 4).
double longrope_magnitude(const Keys& keys, double factor, double original) {
  const double formula = factor <= 1 ? 1.0 : std::sqrt(1 + std::log(factor) / std::log(original));
  return keys.positive("attention_factor", formula);
}

RotaryScaling longrope(const Keys& keys, RotaryScaling scaling, const DecoderConfig& config) {
  const auto pairs = static_cast<std::int64_t>(static_cast<double>(config.head_size) * config.rope_share) / 2;
  scaling.factors = factors_of(keys, "short_factor", pairs);
  (void)factors_of(keys, "long_factor", pairs);  // of samples beyond `original`, which are refused
  scaling.factor = keys.positive("factor", static_cast<double>(config.positions) / scaling.original);
  scaling.magnitude = longrope_magnitude(keys, scaling.factor, scaling.original);
  return scaling;
}

/// Returns the positions of pre-training: the value at the top counts before the value among the scaling's keys. Where
/// the class has a default at the top, that counts too, and another value inside would have no effect.
double original_of(const Keys& keys, const Keys& top, const DecoderConfig& config, const RotaryForm& form) {
  constexpr const char* key = "original_max_position_embeddings";
  const double inside = keys.positive(key, static_cast<double>(config.positions));
  if (form.original == 0) return top.positive(key, inside);
  const double original = top.positive(key, static_cast<double>(form.original));
  if (keys.find(key) != nullptr && inside != original) {
    keys.fail(key, "= " + keys.find(key)->dump() + not_applied_by(form.architecture) +
                       ", which takes the value outside, " + std::to_string(std::llround(original)) +
                       " where it is absent; make them equal");
  }
  return original;
}

/// Of rope_scaling, rope_parameters, or an entry of the latter.
RotaryScaling scaling_of(const Keys& keys, const Keys& top, const DecoderConfig& config, const RotaryForm& form) {
  const std::string type = type_of(keys);
  RotaryScaling scaling;
  if (type == "default") return scaling;
  const bool longrope_named = form.longrope_alone && (type == "su" || type == "yarn");
  if (form.longrope_alone && type != "longrope" && !longrope_named) {
    keys.fail("rope_type", "= " + printable("\"" + type + "\"") + not_applied_by(form.architecture) +
                               "; these are: default, longrope");
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
    if (scaling.high <= scaling.low) keys.fail("high_freq_factor", "must be above low_freq_factor");
    return scaling;
  }
  if (type != "yarn") {
    keys.fail("rope_type", "= " + printable("\"" + type + "\"") +
                               " is not supported; these are: default, linear, llama3, yarn, longrope");
  }
  scaling.kind = Kind::yarn;
  scaling.beta_fast = keys.positive("beta_fast", 32);
  scaling.beta_slow = keys.positive("beta_slow", 1);
  scaling.truncate = keys.flag("truncate", true);
  scaling.magnitude = yarn_magnitude(keys, scaling.factor);
  return scaling;
}

/// The objects of rotary settings in a file, with the names that lead to them: rope_scaling, which is flat, and
/// rope_parameters, which is flat or has an entry for each kind of layer, as the class reads it.
class RotaryObjects {
 public:
  RotaryObjects(const Keys& keys, const RotaryForm& form) : keys_(keys) {
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      const nlohmann::json* object = keys.find(key);
      if (object == nullptr) continue;
      if (!object->is_object()) keys.fail(key, "is " + shown(*object) + "; it must be an object or null");
      if (object->empty()) continue;
      const bool layered = form.by_layer && std::string_view(key) == "rope_parameters";
      if (layered) {
        add_layers(key, *object, form);
      } else {
        refuse_layers(key, *object, form);
        objects_.emplace_back(key, object);
      }
    }
    if (form.by_layer || objects_.size() < 2 || *objects_[0].second == *objects_[1].second) return;
    both_differ_ = true;
  }
  /// Calls `visit(name, keys)` for each object of all layers, or of those that are not windowed.
  template <class Visit>
  void each(Visit visit) const {
    for (const auto& [name, object] : objects_) visit(name, keys_.inside(name, *object));
  }
  template <class Visit>
  void local(Visit visit) const {
    if (local_.second != nullptr) visit(local_.first, keys_.inside(local_.first, *local_.second));
  }
  /// Refuses a rope_parameters that differs from a rope_scaling next to it.
  void require_agreement() const {
    if (both_differ_) {
      keys_.fail("rope_parameters", "differs from rope_scaling, which transformers reads alone; remove one");
    }
  }

 private:
  using Object = std::pair<std::string, const nlohmann::json*>;

  void add_layers(const std::string& key, const nlohmann::json& object, const RotaryForm& form) {
    for (const auto& [layers, entry] : object.items()) {
      const std::string name = key + "." + printable(layers);
      if (layers != global_layers && layers != local_layers) {
        keys_.fail(name, "= " + shown(entry) + not_applied_by(form.architecture) + ", which takes " + global_layers +
                             " and " + local_layers);
      }
      if (entry.is_null()) continue;
      if (!entry.is_object()) keys_.fail(name, "is " + shown(entry) + "; it must be an object or null");
      if (layers == local_layers) local_ = {name, &entry};
      if (layers == global_layers) objects_.emplace_back(name, &entry);
    }
  }
  void refuse_layers(const std::string& key, const nlohmann::json& object, const RotaryForm& form) const {
    for (const char* layers : {global_layers, local_layers}) {
      if (!object.contains(layers)) continue;
      keys_.fail(key + "." + layers, "= " + shown(object[layers]) + not_applied_by(form.architecture) +
                                         "; its rotary settings have no entries of layers here");
    }
  }

  const Keys& keys_;
  std::vector<Object> objects_;
  Object local_{};
  bool both_differ_ = false;
};

void read_local(const Keys& keys, const RotaryObjects& objects, DecoderConfig& config) {
  OneValue theta(keys);
  theta.take("rope_local_base_freq", keys, "rope_local_base_freq");
  objects.local([&](const std::string& name, const Keys& inside) {
    theta.take(name + ".rope_theta", inside, "rope_theta");
    if (const std::string type = type_of(inside); type != "default") {
      inside.fail("rope_type", "= \"" + printable(type) + "\" is not supported; windowed layers have the default");
    }
    inside.refuse_unknown(nothing_is_ignored);
  });
  config.local_rope_theta = theta.value_or(10000.0);
}

}  // namespace

void read_rotary(const Keys& keys, DecoderConfig& config, const RotaryForm& form) {
  const RotaryObjects objects(keys, form);
  OneValue theta(keys), share(keys);
  theta.take("rope_theta", keys, "rope_theta");
  share.take("partial_rotary_factor", keys, "partial_rotary_factor");
  objects.each([&](const std::string& name, const Keys& inside) {
    theta.take(name + ".rope_theta", inside, "rope_theta");
    share.take(name + ".partial_rotary_factor", inside, "partial_rotary_factor");
  });
  objects.require_agreement();
  config.rope_theta = theta.value_or(form.theta);
  config.rope_share = share.value_or(1.0);
  if (!form.partial && config.rope_share != 1) {
    keys.fail("partial_rotary_factor", "= " + number_text(config.rope_share) + not_applied_by(form.architecture) +
                                           ", which rotates whole heads; remove it");
  }
  const auto rotated = static_cast<std::int64_t>(static_cast<double>(config.head_size) * config.rope_share);
  if (config.rope_share > 1 || rotated % 2 != 0 || rotated == 0) {
    keys.fail("partial_rotary_factor", "makes " + std::to_string(rotated) + " of " + std::to_string(config.head_size) +
                                           " columns rotate; it must be an even number of them");
  }
  objects.each([&](const std::string& name, const Keys& inside) {
    for (const char* known : {"rope_theta", "partial_rotary_factor"}) (void)inside.find(known);
    const RotaryScaling found = scaling_of(inside, keys, config, form);
    inside.refuse_unknown(nothing_is_ignored);
    if (found.kind == Kind::none) return;
    if (config.rope_scaling.kind != Kind::none && config.rope_scaling != found) {
      keys.fail(name, "contradicts rope_scaling; remove one");
    }
    config.rope_scaling = found;
  });
  (void)keys.find("original_max_position_embeddings");
  if (form.by_layer) read_local(keys, objects, config);
  if (config.rope_scaling.kind == Kind::longrope) {
    config.positions = std::min(config.positions, static_cast<std::int64_t>(config.rope_scaling.original));
  }
}

void write_rotary(const DecoderConfig& config, const RotaryForm& form, nlohmann::ordered_json& out) {
  out["rope_theta"] = config.rope_theta;
  if (form.by_layer) out["rope_local_base_freq"] = config.local_rope_theta;
  if (config.rope_share != 1) out["partial_rotary_factor"] = config.rope_share;
  const RotaryScaling& scaling = config.rope_scaling;
  if (scaling.kind == Kind::none) return;
  nlohmann::ordered_json& object = out["rope_scaling"];
  constexpr const char* names[] = {"default", "linear", "llama3", "yarn", "longrope"};
  object["rope_type"] = names[static_cast<std::size_t>(scaling.kind)];
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
}

}  // namespace maestro
