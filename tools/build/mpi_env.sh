# Sourced by tests that start mpirun in a sandbox: a folder and settings for Open MPI.

# Open MPI puts UNIX sockets under TMPDIR, and their paths may have only 107
# characters, fewer than a sandbox path has.
TMPDIR="$(mktemp -d /tmp/mpi.XXXXXX)"
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT

# Open MPI 5 does not start without a home folder, and a test has none. This one holds no settings.
export HOME="$TEST_TMPDIR"

export OMPI_MCA_plm=isolated                  # no ssh: this machine only
export OMPI_MCA_btl=self,vader                # shared memory
export OMPI_MCA_btl_vader_backing_directory="$TMPDIR"  # what a killed rank leaves goes with it
export OMPI_MCA_btl_vader_single_copy_mechanism=none  # needs no ptrace rights
export OMPI_MCA_oob_tcp_if_include=lo         # a sandbox has only loopback
export OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_mpi_yield_when_idle=1
export OMP_NUM_THREADS=1
# Open MPI itself leaks a little at exit.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"

mpirun=(mpirun --allow-run-as-root --oversubscribe)

# patient_mpirun leaves ranks the time to end by themselves when one has died or ended with an error.
# mpirun sends the others two signals. Open MPI 4 waits between them for as long as it is told: on a
# busy machine they need longer than its second. Open MPI 5 always waits a quarter of a second, so it
# is told to leave them alone, and then says nothing by its own exit code.
open_mpi="$(mpirun --version | sed -n 's/^mpirun (Open MPI) \([0-9]*\)\..*/\1/p')"
patient_mpirun=("${mpirun[@]}")
if ((open_mpi < 5)); then
  export OMPI_MCA_odls_base_sigkill_timeout=3
else
  patient_mpirun+=(--runtime-options recoverable,error-nonzero-status=false)
fi
