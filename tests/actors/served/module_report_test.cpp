// SPDX-License-Identifier: Apache-2.0
#include "actors/served/module_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "linear_server.hpp"
#include "runtime/core/result.hpp"

namespace maestro::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string refusal(const std::function<void(served::Module&)>& change) {
  served::Module module = linear_module(true);
  change(module);
  try {
    (void)checked_module(module);
  } catch (const JobError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ServedModule, is_what_the_server_reports) {  // VM-1
  const ServedModule module = checked_module(linear_module(true));
  ASSERT_EQ(module.ports.inputs.size(), 1U);
  EXPECT_EQ(module.ports.inputs[0].name, "x");
  EXPECT_EQ(module.ports.inputs[0].columns, 3);
  EXPECT_TRUE(module.ports.outputs.at(0).differentiable);
  EXPECT_EQ(module.parameters.at(0).shape, (Shape{2, 3}));
  EXPECT_TRUE(module.parameters[0].decayed);
  EXPECT_EQ(module.flops_per_row, 12);
}

TEST(ServedModule, that_cannot_be_a_section_is_refused_in_a_line_that_names_the_field) {  // VM-1
  const std::pair<std::function<void(served::Module&)>, const char*> changes[] = {
      {[](auto& m) { m.inputs.clear(); }, "it needs an input"},
      {[](auto& m) { m.inputs.resize(100, m.inputs[0]); }, "it has 100 inputs"},
      {[](auto& m) { m.inputs[0].name = ""; }, "input has the name \"\""},
      {[](auto& m) { m.inputs[0].name = "a.b"; }, "input has the name \"a.b\""},
      {[](auto& m) { m.inputs[0].name = "a\nb"; }, "input has the name \"a\\nb\""},
      {[](auto& m) { m.inputs[0].name.assign(1U << 20, 'x'); }, "input has the name"},
      {[](auto& m) { m.inputs.push_back(m.inputs[0]); }, "two inputs are named 'x'"},
      {[](auto& m) { m.outputs[0].columns = 0; }, "output 'y' has 0 columns"},
      {[](auto& m) { m.outputs[0].columns = std::numeric_limits<std::int64_t>::max(); }, "columns; expected 1 to"},
      {[](auto& m) { m.outputs[0].dtype = 77; }, "output 'y' has the unknown dtype 77"},
      {[](auto& m) { m.inputs[0].dtype = served::DataType::I32; }, "input 'x' is i32 and cannot be differentiable"},
      {[](auto& m) { m.parameters[0].shape = {}; }, "parameter 'weight' has 0 dimensions"},
      {[](auto& m) {
         m.parameters[0].shape = {1, 1, 1, 1, 1};
       },
       "parameter 'weight' has 5 dimensions"},
      {[](auto& m) {
         m.parameters[0].shape = {2, -3};
       },
       "parameter 'weight' has a size of -3"},
      {[](auto& m) {
         m.parameters[0].shape = {1LL << 40, 1LL << 40};
       },
       "parameter 'weight' has a size of"},
      {[](auto& m) { m.parameters.push_back(m.parameters[0]); }, "two parameters are named 'weight'"},
      {[](auto& m) { m.parameters[0].name = "../weight"; }, "parameter has the name \"../weight\""},
      {[](auto& m) { m.flops_per_row = std::numeric_limits<double>::quiet_NaN(); }, "flops_per_row"},
      {[](auto& m) { m.flops_per_row = -1; }, "flops_per_row = -1"},
  };
  for (const auto& [change, line] : changes) {
    const std::string found = refusal(change);
    EXPECT_THAT(found, HasSubstr(line));
    EXPECT_THAT(found, Not(HasSubstr("\n")));
    EXPECT_LT(found.size(), 600U);
  }
}

TEST(ServedModule, differs_by_its_ports_and_by_parameters_or_fingerprint) {
  const ServedModule module = checked_module(linear_module(true));
  EXPECT_EQ(difference(module, module, true), "");
  EXPECT_EQ(difference(module, module, false), "");
  served::Module changed = linear_module(true);
  changed.outputs[0].columns = 4;
  EXPECT_EQ(difference(checked_module(changed), module, true),
            "output 'y' is fp32 x 4, differentiable, was fp32 x 2, differentiable");
  changed = linear_module(true);
  changed.fingerprint = "other";
  EXPECT_EQ(difference(checked_module(changed), module, true), "the fingerprint of its values is other, was linear");
  EXPECT_EQ(difference(checked_module(changed), module, false), "");
  changed.parameters.clear();
  EXPECT_EQ(difference(checked_module(changed), module, false), "parameter 'weight' is missing");
}

}  // namespace
}  // namespace maestro::testing
