// SPDX-License-Identifier: Apache-2.0
#include "actors/launch/process_env.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "actors/launch/slurm_lists.hpp"
#include "tests/job/job_error.hpp"

namespace maestro {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Values = std::map<std::string, std::string, std::less<>>;

ProcessEnv place_of(const Values& values) {
  return find_process_place([&](std::string_view name) -> std::optional<std::string> {
    const auto at = values.find(name);
    return at == values.end() ? std::nullopt : std::optional(at->second);
  });
}

std::string error_of(const Values& values) {
  return job_error_of([&] { static_cast<void>(place_of(values)); });
}

Values with(Values values, const Values& changes) {
  for (const auto& [name, value] : changes) values[name] = value;
  return values;
}

Values without(Values values, const std::string& name) {
  values.erase(name);
  return values;
}

/// Recorded: SLURM 22.05.8, `srun -N2 -n3 env`, the task of rank 1.
const Values srun_rank_1 = {{"SLURM_GTIDS", "0,1"},
                            {"SLURM_JOB_ID", "1"},
                            {"SLURM_JOB_NODELIST", "node[01-02]"},
                            {"SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1"},
                            {"SLURM_LOCALID", "1"},
                            {"SLURM_NODEID", "0"},
                            {"SLURM_NPROCS", "3"},
                            {"SLURM_NTASKS", "3"},
                            {"SLURM_PROCID", "1"},
                            {"SLURM_STEP_ID", "0"},
                            {"SLURM_STEP_NODELIST", "node[01-02]"},
                            {"SLURM_STEP_NUM_NODES", "2"},
                            {"SLURM_STEP_NUM_TASKS", "3"},
                            {"SLURM_STEP_TASKS_PER_NODE", "2,1"},
                            {"SLURM_TASKS_PER_NODE", "2,1"}};

/// Recorded: script of `sbatch -N2 -n4`, outside any step.
const Values sbatch = {{"SLURM_GTIDS", "0"},   {"SLURM_JOB_ID", "4"}, {"SLURM_JOB_NODELIST", "node[01-02]"},
                       {"SLURM_LOCALID", "0"}, {"SLURM_NODEID", "0"}, {"SLURM_NPROCS", "4"},
                       {"SLURM_NTASKS", "4"},  {"SLURM_PROCID", "0"}, {"SLURM_TASKS_PER_NODE", "3,1"}};

/// Recorded: Open MPI 4.1.4, `mpirun -n 2 env`, rank 1.
const Values mpirun_rank_1 = {
    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
    {"OMPI_COMM_WORLD_NODE_RANK", "1"},
    {"OMPI_COMM_WORLD_RANK", "1"},
    {"OMPI_COMM_WORLD_SIZE", "2"},
    {"OMPI_MCA_orte_hnp_uri", "979828736.0;tcp://192.0.2.2,10.0.0.2:57553;tcp6://[fd00::2]:56377"},
    {"PMIX_NAMESPACE", "979828737"},
    {"PMIX_RANK", "1"},
    {"PMIX_SERVER_URI41", "979828736.0;tcp4://127.0.0.1:45135"}};

const Values torchrun_rank_3 = {{"RANK", "3"},       {"WORLD_SIZE", "4"},       {"MASTER_ADDR", "10.0.0.1"},
                                {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}, {"MASTER_PORT", "29500"}};

const Values own_rank_2 = {{"MAESTRO_RANK", "2"},          {"MAESTRO_PROCESSES", "4"},   {"MAESTRO_ROOT_HOST", "alpha"},
                           {"MAESTRO_ROOT_PORT", "40001"}, {"MAESTRO_HOSTS", "0,1,1,2"}, {"MAESTRO_TOKEN", "s3cret"}};

TEST(ProcessEnv, a_process_that_nobody_launched_is_alone) {
  const ProcessEnv place = place_of({{"MAESTRO_TOKEN", "t"}});
  EXPECT_EQ(place.launcher, JobLauncher::none);
  EXPECT_EQ(place.processes, 1);
  EXPECT_THAT(place.hosts, ElementsAre(0));
  EXPECT_EQ(place.root_port, 0);
  EXPECT_EQ(place.token, "t");
}

TEST(ProcessEnv, a_launcher_of_one_process_counts_as_none) {
  EXPECT_EQ(place_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).launcher, JobLauncher::none);
  EXPECT_EQ(place_of({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}).launcher, JobLauncher::none);
  const Values interactive = {{"SLURM_STEP_ID", "4294967290"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}};
  EXPECT_EQ(place_of(interactive).launcher, JobLauncher::none);
}

TEST(ProcessEnv, own_variables_say_everything) {
  const ProcessEnv place = place_of(own_rank_2);
  EXPECT_EQ(place.launcher, JobLauncher::maestro);
  EXPECT_EQ(place.rank, 2);
  EXPECT_EQ(place.processes, 4);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.local_processes, 2);
  EXPECT_THAT(place.hosts, ElementsAre(0, 1, 1, 2));
  EXPECT_EQ(place.root_host, "alpha");
  EXPECT_EQ(place.root_port, 40001);
  EXPECT_EQ(place.token, "s3cret");
}

TEST(ProcessEnv, without_hosts_all_processes_are_on_one) {
  const ProcessEnv place = place_of(without(own_rank_2, "MAESTRO_HOSTS"));
  EXPECT_THAT(place.hosts, ElementsAre(0, 0, 0, 0));
  EXPECT_EQ(place.local_rank, 2);
}

TEST(ProcessEnv, half_set_own_variables_are_named) {
  EXPECT_EQ(error_of(without(own_rank_2, "MAESTRO_PROCESSES")),
            "MAESTRO_PROCESSES is not set, but MAESTRO_RANK is: set both or neither");
  EXPECT_THAT(error_of(without(own_rank_2, "MAESTRO_RANK")), HasSubstr("MAESTRO_RANK is not set"));
  EXPECT_THAT(error_of(without(own_rank_2, "MAESTRO_ROOT_HOST")), HasSubstr("MAESTRO_ROOT_HOST is not set"));
  EXPECT_THAT(error_of(without(own_rank_2, "MAESTRO_ROOT_PORT")), HasSubstr("MAESTRO_ROOT_PORT is not set"));
}

TEST(ProcessEnv, contradictory_own_variables_are_named) {
  EXPECT_EQ(error_of(with(own_rank_2, {{"MAESTRO_RANK", "4"}})),
            "MAESTRO_RANK = 4 does not fit MAESTRO_PROCESSES = 4: ranks count from 0");
  EXPECT_THAT(error_of(with(own_rank_2, {{"MAESTRO_HOSTS", "0,0,1"}})), HasSubstr("3 processes, but there are 4"));
  EXPECT_THAT(error_of(with(own_rank_2, {{"MAESTRO_LOCAL_RANK", "0"}})), HasSubstr("MAESTRO_LOCAL_RANK = 0"));
  for (const char* hosts : {"0,1,0,1", "1,1,2,2", "0,2,2,3", "0,0,1,", "0,0,x,1", "0,0,1 ,1"}) {
    EXPECT_THAT(error_of(with(own_rank_2, {{"MAESTRO_HOSTS", hosts}})), HasSubstr("must be consecutive")) << hosts;
  }
}

TEST(ProcessEnv, values_of_variables_are_shown_in_one_short_line) {
  const std::string odd = "0\n\x1b[2J" + std::string(5000, 'x');
  for (const char* name : {"MAESTRO_RANK", "MAESTRO_HOSTS", "MAESTRO_LOCAL_RANK", "MAESTRO_PROCESSES"}) {
    const std::string told = error_of(with(own_rank_2, {{name, odd}}));
    EXPECT_THAT(told, HasSubstr(std::string(name) + " = \"0\\n\\x1b[2Jxxx")) << name;
    EXPECT_LT(told.size(), 400u) << name;
  }
}

TEST(ProcessEnv, what_is_no_number_is_named) {
  EXPECT_EQ(error_of(with(own_rank_2, {{"MAESTRO_RANK", "two"}})),
            "MAESTRO_RANK = \"two\" is not a number from 0 to 1048576");
  EXPECT_EQ(error_of(with(own_rank_2, {{"MAESTRO_ROOT_PORT", "70000"}})),
            "MAESTRO_ROOT_PORT = \"70000\" is not a number from 1 to 65535");
  EXPECT_THAT(error_of(with(torchrun_rank_3, {{"WORLD_SIZE", "4x"}})), HasSubstr("WORLD_SIZE = \"4x\""));
}

TEST(ProcessEnv, torchrun_style_variables_are_read) {
  const ProcessEnv place = place_of(torchrun_rank_3);
  EXPECT_EQ(place.launcher, JobLauncher::torchrun);
  EXPECT_EQ(place.rank, 3);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_THAT(place.hosts, ElementsAre(0, 0, 1, 1));
  EXPECT_EQ(place.root_host, "10.0.0.1");
  EXPECT_EQ(place.root_port, 29500);
}

TEST(ProcessEnv, beside_torchruns_agent_the_next_port_is_taken) {
  const auto port = [](const char* agents) {
    return place_of(with(torchrun_rank_3, {{"TORCHELASTIC_RUN_ID", "none"}, {"MASTER_PORT", agents}})).root_port;
  };
  EXPECT_EQ(port("29500"), 29501);
  EXPECT_EQ(port("65534"), 65535);
  EXPECT_EQ(port("65535"), 65534) << "there is none above";
}

TEST(ProcessEnv, torchrun_style_variables_on_loopback_need_no_local_world_size) {
  const Values local =
      without(with(torchrun_rank_3, {{"MASTER_ADDR", "localhost"}, {"LOCAL_RANK", "3"}}), "LOCAL_WORLD_SIZE");
  EXPECT_THAT(place_of(local).hosts, ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(error_of(without(torchrun_rank_3, "LOCAL_WORLD_SIZE")), HasSubstr("LOCAL_WORLD_SIZE is not set"));
}

TEST(ProcessEnv, half_set_or_contradictory_torchrun_variables_are_named) {
  EXPECT_THAT(error_of(without(torchrun_rank_3, "RANK")), HasSubstr("RANK is not set, but WORLD_SIZE is"));
  EXPECT_THAT(error_of(without(torchrun_rank_3, "WORLD_SIZE")), HasSubstr("WORLD_SIZE is not set, but RANK is"));
  EXPECT_THAT(error_of(without(torchrun_rank_3, "MASTER_ADDR")), HasSubstr("MASTER_ADDR is not set"));
  EXPECT_THAT(error_of(without(torchrun_rank_3, "MASTER_PORT")), HasSubstr("MASTER_PORT is not set"));
  EXPECT_THAT(error_of(with(torchrun_rank_3, {{"LOCAL_RANK", "0"}})), HasSubstr("LOCAL_RANK = 0"));
  EXPECT_THAT(error_of(with(torchrun_rank_3, {{"LOCAL_WORLD_SIZE", "3"}})), HasSubstr("MAESTRO_HOSTS=0,0,1"));
  const Values uneven = {{"LOCAL_WORLD_SIZE", "3"}, {"MAESTRO_HOSTS", "0,0,1,1"}};
  EXPECT_THAT(place_of(with(torchrun_rank_3, uneven)).hosts, ElementsAre(0, 0, 1, 1));
}

TEST(ProcessEnv, a_step_of_srun_is_read) {
  const ProcessEnv place = place_of(srun_rank_1);
  EXPECT_EQ(place.launcher, JobLauncher::slurm);
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.processes, 3);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.local_processes, 2);
  EXPECT_THAT(place.hosts, ElementsAre(0, 0, 1));
  EXPECT_EQ(place.root_host, "node01");
  EXPECT_EQ(place.root_port, 61441);
}

TEST(ProcessEnv, a_batch_script_outside_of_a_step_is_alone) {
  EXPECT_EQ(place_of(sbatch).launcher, JobLauncher::none);
  EXPECT_EQ(place_of(with(sbatch, {{"WORLD_SIZE", "1"}})).launcher, JobLauncher::none);
}

TEST(ProcessEnv, a_step_on_one_node_meets_on_loopback) {
  const Values one_node = {{"SLURM_STEP_TASKS_PER_NODE", "3"}, {"SLURM_GTIDS", "0,1,2"}};
  EXPECT_EQ(place_of(with(srun_rank_1, one_node)).root_host, "127.0.0.1");
}

TEST(ProcessEnv, jobs_and_steps_meet_at_different_ports) {  // PP-3
  std::set<std::uint16_t> ports;
  for (const char* job : {"1", "2", "3", "4096"}) {
    for (const char* step : {"0", "1", "2"}) {
      ports.insert(place_of(with(srun_rank_1, {{"SLURM_JOB_ID", job}, {"SLURM_STEP_ID", step}})).root_port);
    }
  }
  EXPECT_EQ(ports.size(), 12u);
  EXPECT_GE(*ports.begin(), 61440);
}

TEST(ProcessEnv, master_address_and_port_rule_under_slurm_and_open_mpi) {
  const Values master = {{"MASTER_ADDR", "head-ib"}, {"MASTER_PORT", "5000"}, {"WORLD_SIZE", "3"}};
  for (const auto& launched : {srun_rank_1, mpirun_rank_1}) {
    const ProcessEnv place = place_of(with(launched, master));
    EXPECT_NE(place.launcher, JobLauncher::torchrun);
    EXPECT_EQ(place.root_host, "head-ib");
    EXPECT_EQ(place.root_port, 5000);
  }
}

TEST(ProcessEnv, tasks_that_srun_dealt_out_are_refused_on_every_node) {  // PP-2
  const Values cyclic = with(srun_rank_1, {{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_TASKS_PER_NODE", "3,1"}});
  const Values node_0 = {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}, {"SLURM_GTIDS", "0,2,3"}};
  const Values node_1 = {{"SLURM_PROCID", "1"}, {"SLURM_LOCALID", "0"}, {"SLURM_NODEID", "1"}, {"SLURM_GTIDS", "1"}};
  EXPECT_EQ(error_of(with(cyclic, node_0)),
            "node 0 of the SLURM step has ranks 0,2,3: ranks of a host must be consecutive; start with srun "
            "--distribution=block");
  EXPECT_THAT(error_of(with(cyclic, node_1)), HasSubstr("srun --distribution=block"));
  const Values plane = {{"SLURM_STEP_NUM_TASKS", "4"},
                        {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
                        {"SLURM_GTIDS", "1,3"},
                        {"SLURM_LOCALID", "0"},
                        {"SLURM_NODEID", "1"}};
  EXPECT_THAT(error_of(with(srun_rank_1, plane)), HasSubstr("srun --distribution=block"));
}

TEST(ProcessEnv, contradictory_or_half_set_slurm_variables_are_named) {
  for (const char* tasks : {"3,1", "2", "9223372036854775807,1"}) {
    EXPECT_THAT(error_of(with(srun_rank_1, {{"SLURM_STEP_TASKS_PER_NODE", tasks}})),
                HasSubstr("contradicts SLURM_STEP_NUM_TASKS = 3"));
  }
  EXPECT_THAT(error_of(without(srun_rank_1, "SLURM_PROCID")), HasSubstr("SLURM_PROCID is not set"));
  EXPECT_THAT(error_of(without(srun_rank_1, "SLURM_STEP_NODELIST")), HasSubstr("SLURM_STEP_NODELIST is not set"));
}

TEST(ProcessEnv, mpirun_on_one_host_meets_on_loopback) {
  const ProcessEnv place = place_of(mpirun_rank_1);
  EXPECT_EQ(place.launcher, JobLauncher::open_mpi);
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.processes, 2);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_THAT(place.hosts, ElementsAre(0, 0));
  EXPECT_EQ(place.root_host, "127.0.0.1");
  EXPECT_GE(place.root_port, 61440);
  EXPECT_NE(place.root_port, place_of(with(mpirun_rank_1, {{"PMIX_NAMESPACE", "979894273"}})).root_port);
}

/// Recorded: Open MPI 4.1.4 in two network namespaces, `mpirun --host 10.77.0.1:2,10.77.0.2:2 -n 4`, by rank.
Values mpirun_on_two_hosts(int rank) {
  return {
      {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(rank % 2)},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
      {"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
      {"OMPI_COMM_WORLD_SIZE", "4"},
      {"OMPI_MCA_orte_hnp_uri", "515244032.0;tcp://10.77.0.1:52667"},
      {"PMIX_NAMESPACE", "515244033"},
      {"PMIX_SERVER_URI41", rank < 2 ? "515244032.0;tcp4://127.0.0.1:39541" : "515244032.1;tcp4://127.0.0.1:53905"}};
}

TEST(ProcessEnv, mpirun_on_several_hosts_meets_where_mpirun_runs) {  // PP-2
  for (int rank = 0; rank < 4; ++rank) {
    const ProcessEnv place = place_of(mpirun_on_two_hosts(rank));
    EXPECT_THAT(place.hosts, ElementsAre(0, 0, 1, 1));
    EXPECT_EQ(place.local_rank, rank % 2);
    EXPECT_EQ(place.root_host, "10.77.0.1");
    EXPECT_EQ(place.root_port, place_of(mpirun_on_two_hosts(0)).root_port);
  }
  EXPECT_THAT(error_of(without(mpirun_on_two_hosts(0), "OMPI_MCA_orte_hnp_uri")),
              HasSubstr("mpirun -x MASTER_ADDR=HOST"));
}

TEST(ProcessEnv, the_first_of_several_addresses_of_mpirun_is_taken) {
  EXPECT_EQ(place_of(with(mpirun_rank_1, {{"OMPI_COMM_WORLD_SIZE", "4"}})).root_host, "192.0.2.2");
}

TEST(ProcessEnv, ranks_that_mpirun_dealt_out_are_refused) {  // PP-2
  // Recorded: the same with --map-by node; ranks 0 and 2 are on the first host.
  const Values dealt_out = with(mpirun_on_two_hosts(2), {{"OMPI_COMM_WORLD_LOCAL_RANK", "1"}});
  EXPECT_THAT(error_of(dealt_out), HasSubstr("mpirun --map-by slot"));
  const Values uneven = {{"OMPI_COMM_WORLD_SIZE", "3"}};
  EXPECT_THAT(error_of(with(mpirun_rank_1, uneven)), HasSubstr("MAESTRO_HOSTS=0,0,1"));
}

TEST(ProcessEnv, the_innermost_launcher_counts) {  // PP-1
  // Recorded: in a batch script mpirun starts its daemon with srun, one task per node.
  const Values daemon = {{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}};
  EXPECT_EQ(place_of(with(mpirun_rank_1, daemon)).launcher, JobLauncher::open_mpi);
  EXPECT_EQ(place_of(with(srun_rank_1, torchrun_rank_3)).launcher, JobLauncher::torchrun);
  EXPECT_EQ(place_of(with(torchrun_rank_3, own_rank_2)).launcher, JobLauncher::maestro);
}

TEST(SlurmLists, the_first_host_of_a_list) {
  const std::map<std::string, std::string> first = {
      {"alpha", "alpha"},         {"alpha,beta", "alpha"},  {"node[01-03,7],x", "node01"},
      {"node[7,01-03]", "node7"}, {"n[1-2]-ib,y", "n1-ib"}, {"rack[0-1]node[10-19]", "rack0node10"}};
  for (const auto& [list, host] : first) EXPECT_EQ(first_host_of(list, "L"), host);
  for (const char* list : {"", ",a", "node[01", "[]"}) {
    EXPECT_THAT(job_error_of([&] { static_cast<void>(first_host_of(list, "LIST")); }), HasSubstr("LIST = ")) << list;
  }
}

TEST(SlurmLists, tasks_by_node) {
  EXPECT_THAT(tasks_by_node("2(x3),1", "L"), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(tasks_by_node("4", "L"), ElementsAre(4));
  for (const char* list : {"", "0", "2(x", "2(x3", "2(x0)", "2(y3)", "1,", ",1", "-1", "1 ", "1(x99999999)"}) {
    EXPECT_THAT(job_error_of([&] { static_cast<void>(tasks_by_node(list, "LIST")); }), HasSubstr("LIST = ")) << list;
  }
}

TEST(ProcessEnv, a_process_that_joins_a_running_job_is_none_of_its_first) {
  const ProcessEnv place = place_of(with(own_rank_2, {{"MAESTRO_RANK", "5"}, {"MAESTRO_JOINS", "teacher"}}));
  EXPECT_EQ(place.joins, "teacher");
  EXPECT_EQ(place.rank, 5);
  EXPECT_EQ(place.processes, 4);
  EXPECT_EQ(place.hosts.size(), 4u);
}

}  // namespace
}  // namespace maestro
