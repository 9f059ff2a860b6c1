// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/isa.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "runtime/core/result.hpp"

namespace maestro::cpu {
namespace {

/// Sets the variable for a test and restores the previous value.
class IsaChoice : public ::testing::Test {
 protected:
  IsaChoice() {
    const char* value = std::getenv("MAESTRO_CPU_ISA");
    had_ = value != nullptr;
    if (had_) former_ = value;
    unsetenv("MAESTRO_CPU_ISA");
  }
  ~IsaChoice() override {
    if (had_) {
      setenv("MAESTRO_CPU_ISA", former_.c_str(), 1);
    } else {
      unsetenv("MAESTRO_CPU_ISA");
    }
  }
  static std::string message_for(const char* name) {
    setenv("MAESTRO_CPU_ISA", name, 1);
    try {
      (void)best_isa();
    } catch (const JobError& error) {
      return error.what();
    }
    return "no error";
  }

 private:
  bool had_ = false;
  std::string former_;
};

TEST_F(IsaChoice, the_widest_supported_set_is_the_default) {
  EXPECT_EQ(best_isa(), supported_isas().back());
}

TEST_F(IsaChoice, every_supported_set_can_be_asked_for_by_name) {
  for (const Isa isa : supported_isas()) {
    setenv("MAESTRO_CPU_ISA", std::string(name_of(isa)).c_str(), 1);
    EXPECT_EQ(best_isa(), isa);
  }
}

TEST_F(IsaChoice, an_empty_name_means_the_default) {
  setenv("MAESTRO_CPU_ISA", "", 1);
  EXPECT_EQ(best_isa(), supported_isas().back());
}

TEST_F(IsaChoice, an_unknown_name_is_refused_with_the_names_there_are) {
  EXPECT_EQ(message_for("avx1024"), "MAESTRO_CPU_ISA=avx1024 is unknown; use generic, avx2 or avx512");
}

TEST_F(IsaChoice, a_set_that_the_processor_lacks_is_refused) {
  if (supported(Isa::avx512)) GTEST_SKIP() << "this CPU has every set";
  EXPECT_NE(message_for("avx512").find("supports at most"), std::string::npos);
}

}  // namespace
}  // namespace maestro::cpu
