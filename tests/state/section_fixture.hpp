// A small section to put into checkpoints, different for every step.
#pragma once

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "runtime/state/checkpoint_store.hpp"

namespace maestro {

/// Owns the memory that its state() views.
class SmallSection {
 public:
  explicit SmallSection(std::uint64_t step) : step_(step), values_(12) {
    std::iota(values_.begin(), values_.end(), static_cast<float>(step));
  }
  [[nodiscard]] SectionState state() {
    const auto part = [&](std::size_t begin) { return Tensor(values_.data() + begin, DType::f32, {2, 2}); };
    SectionState state;
    state.config = "{\"step\": " + std::to_string(step_) + "}\n";
    state.parameters = {{"h.weight", part(0)}};
    state.optimizer = {{"exp_avg.h.weight", part(4)}, {"exp_avg_sq.h.weight", part(8)}};
    state.optimizer_step = step_;
    return state;
  }

 private:
  std::uint64_t step_;
  std::vector<float> values_;
};

/// A whole checkpoint with the sections "student" and "teacher".
inline Status write_checkpoint(const CheckpointStore& store, std::uint64_t step, std::uint64_t contents) {
  const Result<std::filesystem::path> staging = store.begin(StepId(step));
  if (!staging) return staging.error();
  Manifest manifest;
  manifest.step = step;
  manifest.data_position = contents;
  SmallSection section(contents);
  for (const char* name : {"student", "teacher"}) {
    const auto records = store.write_section(*staging, name, section.state());
    if (!records) return records.error();
    manifest.files.insert(manifest.files.end(), records->begin(), records->end());
  }
  return store.commit(*staging, manifest);
}

inline Status write_checkpoint(const CheckpointStore& store, std::uint64_t step) {
  return write_checkpoint(store, step, step);
}

}  // namespace maestro
