! Heat in a plate: a square whose upper edge is hot and whose other edges are
! cold, by Jacobi's method. Each task has a block of rows; after each step it
! exchanges border rows with its neighbours. From time to time the first task
! collects the largest changes, and tells the others whether to go on. The
! numbers are the same with any number of tasks.
!
!   heat [TASKS [SIZE]]        default: 1 task and a plate of 200 x 200
!
! Spawned tasks run this same program. Fortran's spawn passes no arguments, so
! the first task sends them the parameters in a message.
      program heat
        implicit none
        include 'fpvm3.h'

        integer, parameter :: tasks_max = 64
        integer, parameter :: tag_plan = 1, tag_up = 2, tag_down = 3
        integer, parameter :: tag_change = 4, tag_verdict = 5
        integer, parameter :: tag_sum = 6
        integer, parameter :: steps_between_looks = 50
        double precision, parameter :: small_change = 1d-3, hot = 100d0

! The tids of all tasks, in order of their rows; `own` is this task's index.
        integer :: tids(0:tasks_max - 1), tasks, own
        integer :: size
        integer :: rows, step, info
        logical :: done
        double precision :: change, total
        double precision, allocatable :: plate(:, :), next(:, :)

        call make_plan
        call make_plate
        step = 0
        done = .false.
        do while (.not. done)
          call exchange_borders
          call one_step(change)
          step = step + 1
          if (mod(step, steps_between_looks) == 0)
     &      call decide(change, done)
        end do
        call add_up(total)
        if (own == 0) then
          print '(a, i0, a, i0, a, i0, a, f0.6)', 'heat: ', tasks,
     &      ' tasks, ', size, ' rows, ', step, ' steps, mean ',
     &      total / (dble(size) * size)
        end if
        call pvmfexit(info)

      contains

! The first task reads the arguments and starts the others.
        subroutine make_plan
          integer :: parent, me, buffer, started
          character(len=500) :: path
          call pvmfmytid(me)
          call check(me, 'enroll')
          call pvmfparent(parent)
          if (parent > 0) then
            call pvmfrecv(parent, tag_plan, buffer)
            call pvmfunpack(INTEGER4, own, 1, 1, info)
            call pvmfunpack(INTEGER4, tasks, 1, 1, info)
            call pvmfunpack(INTEGER4, size, 1, 1, info)
            call pvmfunpack(INTEGER4, tids, tasks, 1, info)
            call check(info, 'read the plan')
          else
            own = 0
            tasks = min(argument(1, 1), tasks_max)
            size = max(argument(2, 200), tasks)
            tids(0) = me
            if (tasks > 1) then
              call find_program(path)
              call pvmfspawn(path, PVMTASKDEFAULT, '*', tasks - 1,
     &          tids(1), started)
              if (started < tasks - 1)
     &          stop 'heat: not all tasks could be started'
              call send_plan
            end if
          end if
        end subroutine

! Finds the absolute path of this program. The daemon would look up a relative
! path in its own working directory.
        subroutine find_program(path)
          character(len=*), intent(out) :: path
          character(len=240) :: name, directory
          call get_command_argument(0, name)
          path = name
          if (name(1:1) == '/' .or. index(name, '/') == 0) return
          call get_environment_variable('PWD', directory)
          path = trim(directory) // '/' // name
        end subroutine

        subroutine send_plan
          integer :: other, buffer
          do other = 1, tasks - 1
            call pvmfinitsend(PVMDATADEFAULT, buffer)
            call pvmfpack(INTEGER4, other, 1, 1, info)
            call pvmfpack(INTEGER4, tasks, 1, 1, info)
            call pvmfpack(INTEGER4, size, 1, 1, info)
            call pvmfpack(INTEGER4, tids, tasks, 1, info)
            call pvmfsend(tids(other), tag_plan, info)
            call check(info, 'send the plan')
          end do
        end subroutine

! Returns an integer of the command line, at least 1.
        integer function argument(place, default)
          integer, intent(in) :: place, default
          character(len=20) :: text
          integer :: status
          call get_command_argument(place, text)
          read (text, *, iostat=status) argument
          if (status /= 0) argument = default
          argument = max(argument, 1)
        end function

! A row of the plate is a column of the array, so it is contiguous in memory.
        subroutine make_plate
          rows = size / tasks
          if (own < mod(size, tasks)) rows = rows + 1
          allocate (plate(0:size + 1, 0:rows + 1))
          allocate (next(0:size + 1, 0:rows + 1))
          plate = 0
          if (own == 0) plate(:, 0) = hot
          next = plate
        end subroutine

! Sends before it receives: this is safe, since a send never waits for its
! receiver.
        subroutine exchange_borders
          integer :: tid, tag, bytes
          logical :: above, below
          above = own > 0
          below = own < tasks - 1
          info = PvmOk
          if (above) call pvmfpsend(tids(own - 1), tag_up,
     &      plate(1, 1), size, REAL8, info)
          if (below) call pvmfpsend(tids(own + 1), tag_down,
     &      plate(1, rows), size, REAL8, info)
          if (above) call pvmfprecv(tids(own - 1), tag_down,
     &      plate(1, 0), size, REAL8, tid, tag, bytes, info)
          if (below) call pvmfprecv(tids(own + 1), tag_up,
     &      plate(1, rows + 1), size, REAL8, tid, tag, bytes, info)
          call check(info, 'exchange borders')
        end subroutine

        subroutine one_step(largest)
          double precision, intent(out) :: largest
          integer :: i, j
          do j = 1, rows
            do i = 1, size
              next(i, j) = 0.25d0 * (plate(i - 1, j) + plate(i + 1, j)
     &          + plate(i, j - 1) + plate(i, j + 1))
            end do
          end do
          largest = maxval(abs(next(1:size, 1:rows)
     &      - plate(1:size, 1:rows)))
          plate(1:size, 1:rows) = next(1:size, 1:rows)
        end subroutine

! The first task receives the largest change of each task, and tells the others
! whether all of them are small enough.
        subroutine decide(largest, enough)
          double precision, intent(in) :: largest
          logical, intent(out) :: enough
          double precision :: all, one
          integer :: other, buffer, verdict
          if (own > 0) then
            call send_number(tag_change, largest)
            call pvmfrecv(tids(0), tag_verdict, buffer)
            call pvmfunpack(INTEGER4, verdict, 1, 1, info)
            call check(info, 'hear the verdict')
            enough = verdict /= 0
          else
            all = largest
            do other = 1, tasks - 1
              call receive_number(tids(other), tag_change, one)
              all = max(all, one)
            end do
            enough = all < small_change
            verdict = merge(1, 0, enough)
            call pvmfinitsend(PVMDATADEFAULT, buffer)
            call pvmfpack(INTEGER4, verdict, 1, 1, info)
            call pvmfmcast(tasks - 1, tids(1), tag_verdict, info)
            call check(info, 'tell the verdict')
          end if
        end subroutine

! Adds row by row and in order, so that the rounding is the same with any
! number of tasks.
        subroutine add_up(total)
          double precision, intent(out) :: total
          double precision :: one
          integer :: other, row, count
          total = 0
          do row = 1, rows
            if (own > 0) then
              call send_number(tag_sum, sum(plate(1:size, row)))
            else
              total = total + sum(plate(1:size, row))
            end if
          end do
          if (own > 0) return
          do other = 1, tasks - 1
            count = size / tasks
            if (other < mod(size, tasks)) count = count + 1
            do row = 1, count
              call receive_number(tids(other), tag_sum, one)
              total = total + one
            end do
          end do
        end subroutine

        subroutine send_number(tag, number)
          integer, intent(in) :: tag
          double precision, intent(in) :: number
          integer :: buffer
          call pvmfinitsend(PVMDATADEFAULT, buffer)
          call pvmfpack(REAL8, number, 1, 1, info)
          call pvmfsend(tids(0), tag, info)
          call check(info, 'send a number')
        end subroutine

        subroutine receive_number(tid, tag, number)
          integer, intent(in) :: tid, tag
          double precision, intent(out) :: number
          integer :: buffer
          call pvmfrecv(tid, tag, buffer)
          call pvmfunpack(REAL8, number, 1, 1, info)
          call check(info, 'receive a number')
        end subroutine

        subroutine check(code, what)
          integer, intent(in) :: code
          character(len=*), intent(in) :: what
          if (code >= 0) return
          call pvmfperror('heat: cannot ' // what, info)
          call pvmfexit(info)
          stop 1
        end subroutine
      end program
