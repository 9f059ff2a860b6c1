// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/adapter_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maestro {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(AdapterConfig, reads_what_it_has_written) {
  for (const double alpha : {16.0, 2.5}) {
    const std::string text = adapter_config_text({8, alpha, {"q_proj", "down_proj"}, true, "/models/a \"b\""});
    const AdapterConfig read = parse_adapter_config(text, "adapter_config.json").value_or_throw();
    EXPECT_EQ(read.rank, 8);
    EXPECT_EQ(read.alpha, alpha);
    EXPECT_EQ(read.scale(), alpha / 8);
    EXPECT_THAT(read.modules, ElementsAre("q_proj", "down_proj"));
    EXPECT_TRUE(read.transposed);
    EXPECT_EQ(read.base, "/models/a \"b\"");
  }
  EXPECT_EQ(parse_adapter_config(adapter_config_text({1, 1, {"o_proj"}, false, ""}), "x").value_or_throw().base, "");
}

TEST(AdapterConfig, refuses_adapters_of_another_kind_by_key) {
  const auto refusal = [](const std::string& keys) {
    return parse_adapter_config("{" + keys + "}", "adapter_config.json").error().message;
  };
  const std::string lora = R"("peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"])";
  EXPECT_TRUE(parse_adapter_config("{" + lora + "}", "x").ok());
  EXPECT_THAT(refusal(R"("peft_type": "IA3")"), HasSubstr("adapter_config.json: peft_type = \"IA3\" is not supported"));
  EXPECT_THAT(refusal(lora + R"(, "use_dora": true)"), HasSubstr("use_dora = true is not supported"));
  EXPECT_THAT(refusal(lora + R"(, "rank_pattern": {"q_proj": 2})"),
              HasSubstr("rank_pattern = {\"q_proj\":2} is not supported"));
  EXPECT_THAT(refusal(R"("peft_type": "LORA", "lora_alpha": 8, "target_modules": "all-linear", "r": 1)"),
              HasSubstr("target_modules: expected a list"));
  EXPECT_THAT(refusal(R"("peft_type": "LORA", "target_modules": ["a"])"), HasSubstr("r is missing"));
}

}  // namespace
}  // namespace maestro
