// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/device_id.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace maestro {
namespace {

using Kind = DeviceId::Kind;

TEST(DeviceId, numbered_emulated_devices_are_others_than_those_of_sections) {
  const DeviceId device = parse_device("emulated:7").value();
  EXPECT_EQ(device, (DeviceId{Kind::emulated, 7, "", true}));
  for (const char* name : {"emulated:0", "emulated:999999999"}) EXPECT_EQ(text_of(*parse_device(name)), name);
  EXPECT_NE(parse_device("emulated:0"), (DeviceId{Kind::emulated}));
  EXPECT_FALSE(parse_device("cpu:0")->numbered);
}

TEST(DeviceId, names_of_cores_and_gpus_are_read_and_printed) {
  EXPECT_EQ(parse_device("cpu:3"), (DeviceId{Kind::cpu, 3}));
  EXPECT_EQ(parse_device("cuda:12"), (DeviceId{Kind::cuda, 12}));
  EXPECT_TRUE(parse_device("cuda:0")->is_cuda());
  EXPECT_FALSE(parse_device("cpu:0")->is_cuda());
  for (const char* name : {"cpu:0", "cpu:9999", "cuda:0", "cuda:31"}) EXPECT_EQ(text_of(*parse_device(name)), name);
}

TEST(DeviceId, other_names_are_refused) {
  for (const char* name : {"",
                           "cpu",
                           "cpu:",
                           "cpu:x",
                           "cpu:1x",
                           "cpu: 1",
                           "cpu:-1",
                           "cpu:+1",
                           "gpu:0",
                           "CPU:0",
                           "cpu:10000",
                           "cpu:99999999999999999999",
                           "cuda",
                           "cuda:",
                           "cuda:x",
                           "host",
                           "emulated",
                           "emulated:",
                           "emulated:x",
                           "emulated:1234567890",
                           "emulated:teacher/0"}) {
    EXPECT_FALSE(parse_device(name)) << name;
  }
}

TEST(DeviceId, sources_and_emulated_devices_have_names_of_their_own) {
  EXPECT_EQ(text_of(DeviceId()), "host");
  EXPECT_EQ(text_of({Kind::emulated}), "emulated");
  EXPECT_EQ(text_of({Kind::emulated, 3, "teacher"}), "emulated:teacher/3");
  EXPECT_THAT(texts_of({{Kind::cuda, 1}, {Kind::cpu, 0}}), ::testing::ElementsAre("cuda:1", "cpu:0"));
}

TEST(DeviceId, devices_are_ordered_by_kind_and_number) {
  const std::set<DeviceId> devices{
      {Kind::cuda, 10}, {Kind::cuda, 2},          {Kind::cpu, 10}, {Kind::cuda, 2},
      {Kind::host},     {Kind::emulated, 0, "b"}, {Kind::cpu, 2},  {Kind::emulated, 0, "a"}};
  EXPECT_THAT(texts_of({devices.begin(), devices.end()}),
              ::testing::ElementsAre("host", "cpu:2", "cpu:10", "cuda:2", "cuda:10", "emulated:a/0", "emulated:b/0"));
}

}  // namespace
}  // namespace maestro
