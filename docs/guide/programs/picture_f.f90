! picture_f: a farm that draws the Mandelbrot set with letters. The master hands out lines, the workers compute them.
program picture_f
  implicit none
  include 'fpvm3.h'
  integer, parameter :: workers = 4, lines = 21, columns = 64
  integer, parameter :: tag_line = 1, tag_done = 2, tag_stop = 3
  integer :: me, master, info

  call pvmfmytid(me)                            ! the first call makes this process a task
  call pvmfparent(master)
  if (master > 0) then
    call work
  else
    call lead
  end if
  call pvmfexit(info)

contains

  subroutine compute(line, text)
    integer, intent(in) :: line
    character(len=columns), intent(out) :: text
    character(len=10), parameter :: shades = ' .:-=+*%@#'
    double precision :: cx, cy, x, y, old
    integer :: column, steps, shade
    do column = 0, columns - 1
      cx = -2.2d0 + 3.2d0 * column / columns
      cy = -1.2d0 + 2.4d0 * line / (lines - 1)
      x = 0
      y = 0
      steps = 0
      do while (steps < 1000 .and. x * x + y * y < 4)
        old = x
        x = x * x - y * y + cx
        y = 2 * old * y + cy
        steps = steps + 1
      end do
      shade = merge(9, min(steps, 8), steps == 1000) + 1
      text(column + 1:column + 1) = shades(shade:shade)
    end do
  end subroutine

  subroutine work
    character(len=columns) :: text
    integer :: line, buffer, bytes, tag, source
    do
      call pvmfrecv(master, -1, buffer)         ! a message from the master, with any tag
      call pvmfbufinfo(buffer, bytes, tag, source, info)
      if (tag == tag_stop) exit
      call pvmfunpack(INTEGER4, line, 1, 1, info)
      call compute(line, text)
      call pvmfinitsend(PVMDATADEFAULT, info)
      call pvmfpack(INTEGER4, line, 1, 1, info)
      call pvmfpack(STRING, text, columns, 1, info)
      call pvmfsend(master, tag_done, info)
    end do
  end subroutine

  subroutine hand_out(worker, line)
    integer, intent(in) :: worker, line
    call pvmfinitsend(PVMDATADEFAULT, info)
    call pvmfpack(INTEGER4, line, 1, 1, info)
    call pvmfsend(worker, merge(tag_line, tag_stop, line < lines), info)
  end subroutine

  subroutine lead
    character(len=columns) :: picture(0:lines - 1)
    integer :: tids(workers), started, next, done, line, buffer, bytes, tag, worker
    call pvmfspawn('picture_f', PVMTASKDEFAULT, '*', workers, tids, started)
    if (started < workers) stop 'picture_f: the workers could not be started'
    do next = 0, workers - 1
      call hand_out(tids(next + 1), next)
    end do
    do done = 1, lines
      call pvmfrecv(-1, tag_done, buffer)       ! from any worker: whoever is ready gets the next line
      call pvmfbufinfo(buffer, bytes, tag, worker, info)
      call pvmfunpack(INTEGER4, line, 1, 1, info)
      call pvmfunpack(STRING, picture(line), columns, 1, info)
      call hand_out(worker, next)
      next = next + 1
    end do
    do line = 0, lines - 1
      print '(a)', trim(picture(line))
    end do
  end subroutine
end program
