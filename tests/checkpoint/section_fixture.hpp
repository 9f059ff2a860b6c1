// SPDX-License-Identifier: Apache-2.0
// A small section for checkpoints, different at every step.
#pragma once

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "runtime/checkpoint/checkpoint_store.hpp"

namespace maestro {

/// Owns the memory that its state() views: the tensor h.weight and its moments, or for part i the tensor h.<i>.weight.
class SmallSection {
 public:
  explicit SmallSection(std::uint64_t step, StatePart part = {}) : step_(step), part_(part), values_(12) {
    std::iota(values_.begin(), values_.end(), static_cast<float>(step + 100 * part.index));
  }
  [[nodiscard]] SectionState state() {
    const auto tensor = [&](std::size_t begin) { return Tensor(values_.data() + begin, DType::f32, {2, 2}); };
    const std::string name = part_.count == 1 ? "h.weight" : "h." + std::to_string(part_.index) + ".weight";
    SectionState state;
    state.config = "{\"step\": " + std::to_string(step_) + "}\n";
    state.parameters = {{name, tensor(0)}};
    state.optimizer = {{"exp_avg." + name, tensor(4)}, {"exp_avg_sq." + name, tensor(8)}};
    state.optimizer_step = step_;
    state.part = part_;
    return state;
  }

  /// Flips a bit of the second moment, which state() views.
  void flip_a_bit() { reinterpret_cast<unsigned char&>(values_[8]) ^= 1; }

 private:
  std::uint64_t step_;
  StatePart part_;
  std::vector<float> values_;
};

/// Writes a complete checkpoint with the sections "student" and "teacher", and "deep" in two parts.
inline Status write_checkpoint(const CheckpointStore& store, std::uint64_t step, std::uint64_t contents,
                               const RunIdentity& run = {}) {
  const Result<std::filesystem::path> staging = store.begin(StepId(step), run.id);
  if (!staging) return staging.error();
  Manifest manifest;
  manifest.run = run;
  manifest.step = step;
  manifest.data_position = contents;
  const auto write = [&](const char* name, StatePart part) -> Status {
    SmallSection section(contents, part);
    const auto records = store.write_section(*staging, name, section.state());
    if (!records) return records.error();
    manifest.files.insert(manifest.files.end(), records->begin(), records->end());
    return {};
  };
  for (const char* name : {"student", "teacher"}) {
    if (const Status written = write(name, {}); !written) return written;
  }
  for (const std::uint32_t index : {0u, 1u}) {
    if (const Status written = write("deep", {index, 2}); !written) return written;
  }
  return store.commit(*staging, manifest);
}

inline Status write_checkpoint(const CheckpointStore& store, std::uint64_t step) {
  return write_checkpoint(store, step, step);
}

}  // namespace maestro
